"""Run the notebooks headless, in order: ``python -m dmlmc.reproduce --profile paper``.

Executed copies go to ``notebooks/executed/<profile>/``, figures and their data to ``figures/`` or ``figures/quick/``.
A notebook is skipped if none of its inputs changed since its last finished run: its code, its parameters, the files
it reads, the package and the lock file. Compiled programs are kept in ``.cache/`` for all notebooks and later runs.
``--seeds 3 --max-level 4`` sets parameters in every selected notebook that has them. With another ``--output`` the
copies go to ``notebooks/executed/elsewhere/``. A run of the paper profile with its own parameters also fills the tables
of the README.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dmlmc._internal.checks import integer
from dmlmc._internal.files import write
from dmlmc.reproduce import jobs, notebooks, readme, summary
from dmlmc.reproduce.profiles import AT_ONCE, PROFILES


def pairs(arguments: Sequence[str]) -> dict[str, Any]:
    """The parameters in a list of command-line arguments.

    >>> pairs(["--seeds", "3", "--max-level=4", "--output", "elsewhere"])
    {'seeds': 3, 'max_level': 4, 'output': 'elsewhere'}
    """
    found, rest = {}, list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if not name.startswith("--") or not (equals or rest):
            raise ValueError(f"reproduce: a parameter must be given as --name value, got {name!r}.")
        found[name[2:].replace("-", "_")] = notebooks.literal(value if equals else rest.pop(0))
    return found


def command_line() -> argparse.ArgumentParser:
    """The parser. Arguments that it does not know are parameters of the notebooks."""
    parser = argparse.ArgumentParser(
        "python -m dmlmc.reproduce",
        description=__doc__,
        epilog="Any other --name value sets a parameter of the notebooks.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--profile", choices=PROFILES, default="paper", help="sizes of the runs (default: paper)")
    parser.add_argument("--only", action="append", default=[], metavar="03", help="only this notebook; may be repeated")
    parser.add_argument("--force", action="store_true", help="also run notebooks that are up to date")
    parser.add_argument("--list", action="store_true", help="list the notebooks and their parameters, then exit")
    parser.add_argument(
        "--at-once",
        type=int,
        metavar="N",
        help=f"notebooks to run in parallel (default: {AT_ONCE['quick']} if quick, else 1)",
    )
    parser.add_argument("--no-cache", action="store_true", help="compile everything, also what an earlier run compiled")
    parser.add_argument("--in-place", action="store_true", help="write cleaned quick outputs into the notebooks")
    return parser


def listing(selected: Sequence[jobs.Job]) -> str:
    """For each notebook: whether it is up to date, and the parameters of its next run."""
    lines = []
    for job in selected:
        lines.append(f"{job.name}: {'to run' if job.last_run() is None else 'up to date'}")
        values = notebooks.defaults(job.notebook) | job.parameters
        lines += [f"    --{name.replace('_', '-')} {value!r}" for name, value in values.items()]
    return "\n".join(lines)


def keep_compiled(directory: Path) -> None:
    """Let the kernels of the notebooks share what they compile, also with later runs, unless the user's settings do."""
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(directory))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")  # also the many small ones


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Exit code: 0, 1 if a notebook failed or a file cannot be written, 2 for wrong arguments, 130 after an interrupt.
    """
    parser = command_line()
    options, others = parser.parse_known_args(arguments)
    try:
        overrides = pairs(others)
        selected = jobs.jobs(options.profile, options.only, overrides)
        at_once = AT_ONCE[options.profile] if options.at_once is None else options.at_once
        integer("reproduce: --at-once", at_once, minimum=1)
    except ValueError as error:
        parser.error(str(error).removeprefix("reproduce: "))
    if options.in_place and (options.profile != "quick" or overrides):
        parser.error("--in-place is for the quick profile with default parameters")
    if options.list:
        print(listing(selected))
        return 0
    if not options.no_cache:
        keep_compiled(jobs.NOTEBOOKS.parent / ".cache" / "jax")
    try:
        failures = jobs.run(selected, force=options.force, in_place=options.in_place, at_once=at_once)
        data = jobs.NOTEBOOKS / overrides.get("output", PROFILES[options.profile]) / "data"
        claims = summary.judge(data, failed=failures)
        write(data / "summary.json", summary.to_json(claims))
        page = jobs.NOTEBOOKS.parent / "README.md"
        if options.profile == "paper" and not overrides and not failures and page.exists():
            readme.fill(page, data)
    except (KeyboardInterrupt, OSError) as error:  # a full disk, for instance
        why, code = ("interrupted", 130) if isinstance(error, KeyboardInterrupt) else (str(error), 1)
        print(f"\n{why}; finished notebooks are kept, run the same command to continue", file=sys.stderr)
        return code
    print(f"\n{summary.as_text(claims)}\n\nwritten to {(data / 'summary.json').resolve()}", flush=True)
    for name, failure in failures.items():
        print(f"{name} FAILED in {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
