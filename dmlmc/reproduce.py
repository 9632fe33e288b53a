"""Run the notebooks headlessly: ``python -m dmlmc.reproduce --profile paper``."""

import argparse
import time
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"

# A notebook's own default parameters are its quick profile; these are the sizes of the paper.
PAPER: dict[str, dict[str, Any]] = {
    "01_assumptions": {
        "profile": "paper",
        "max_level": 6,
        "level0_samples": 512,
        "stops": [0, 10, 50, 200, 500, 1000],
        "samples": 2048,
        "output": "../figures",
    },
    "03_deep_hedging": {
        "profile": "paper",
        "seeds": 10,
        "max_level": 6,
        "level0_samples": 512,
        "steps": 800,
        "delayed_steps": 4000,
        "evaluate_every": 80,
        "validation_paths": 2048,
        "final_paths": 8192,
        "output": "../figures",
    },
}


def reproduce(profile: str) -> None:
    """Execute every notebook at a profile, ``"quick"`` or ``"paper"``; executed copies go to ``notebooks/executed``."""
    import papermill  # of the dev extra: the library itself does without

    if profile not in ("quick", "paper"):
        raise ValueError(f"reproduce: profile must be 'quick' or 'paper', got {profile!r}.")
    executed = NOTEBOOKS / "executed" / profile
    executed.mkdir(parents=True, exist_ok=True)
    for notebook in sorted(NOTEBOOKS.glob("[0-9]*.ipynb")):
        began = time.perf_counter()
        papermill.execute_notebook(
            str(notebook),
            str(executed / notebook.name),
            parameters=PAPER[notebook.stem] if profile == "paper" else {},
            cwd=str(NOTEBOOKS),
            kernel_name="python3",
        )
        print(f"{notebook.name}: {time.perf_counter() - began:.0f} s at the {profile} profile", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", choices=("quick", "paper"), default="paper")
    reproduce(parser.parse_args().profile)
