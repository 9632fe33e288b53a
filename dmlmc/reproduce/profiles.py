"""The two sizes of the notebooks: quick, to see that everything works, and paper."""

from typing import Any

PROFILES = {"quick": "../figures/quick", "paper": "../figures"}  # profile: directory of its figures
# The quick profile mostly compiles, which leaves cores idle. The paper profile uses all cores and measures times.
AT_ONCE = {"quick": 2, "paper": 1}

# The default parameters of a notebook are its quick profile. These are the sizes of the paper's experiment. What the
# paper does not say (512 samples at level 0, 800 and 4000 steps) is as in its author's code, kstoneriv3/delayed-mlmc.
PAPER: dict[str, dict[str, Any]] = {
    "00_start_here": {"profile": "paper", "output": "../figures"},
    "01_assumptions": {
        "profile": "paper",
        "max_level": 6,
        "level0_samples": 512,
        "stops": [0, 10, 50, 200, 500, 1000],
        "samples": 2048,
        "output": "../figures",
    },
    "02_theorem": {
        "profile": "paper",
        "run_cases": [[1, 1.0, 16], [3, 0.5, 64], [3, 2.0, 16], [5, 1.0, 64]],
        "run_steps": [10, 100, 400],
        "seeds": 100,
        "exact_levels": [0, 2, 4, 6, 8],
        "exact_steps": [10, 100, 1000],
        "trade_levels": [2, 4, 6, 8],
        "proof_level": 6,
        "proof_steps": 4000,
        "proof_seeds": 20,
        "map_level": 3,
        "map_points": 60,
        "map_runs": [1.5, 2.5],
        "hedging_level": 6,
        "hedging_samples": 512,
        "hedging_steps": 100,
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
        "floor_paths": 65536,
        "final_paths": 8192,
        "variance_samples": 2048,
        "output": "../figures",
    },
    "06_wall_clock": {
        "profile": "paper",
        "levels": [2, 4, 6],
        "repeats": 45,
        "output": "../figures",
    },
    "07_your_own_sde": {
        "profile": "paper",
        "max_level": 3,
        "level0_samples": 64,
        "steps": 400,
        "seeds": 4,
        "sgd_rates": [0.1, 0.2, 0.4],
        "momentum_rates": [0.01, 0.02, 0.04],
        "adam_rates": [0.005, 0.01, 0.02],
        "validation_paths": 512,
        "budget": 30_000,
        "period_factors": [1, 16],
        "momenta": [0.0, 0.3, 0.5, 0.7, 0.9],
        "output": "../figures",
    },
}
