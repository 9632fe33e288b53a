"""Mutation testing: make one small change to the code at a time, and count the changes that its tests detect.

``make mutants`` runs mutmut on the modules in ``tool.mutmut`` of pyproject.toml and writes tests/MUTANTS.md, where the
reasons are written by hand. ``.venv/bin/python -m tests.mutants dmlmc/rates.py`` tests those of one module again that
were not killed. With a second argument, an expression for ``pytest -k``, they are tested by those tests alone, which is
fast after a test was added.
"""

import gc
import itertools
import math
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import libcst
from hypothesis import Phase, settings
from mutmut import __main__ as mutmut
from mutmut.configuration import config
from mutmut.mutation import diff_apply, file_mutation, mutators
from mutmut.mutation.data import SourceFileMutationData
from mutmut.runners.harness import PytestRunner
from mutmut.state import state
from mutmut.utils.file_utils import change_cwd
from mutmut.workers import isolation

ROOT = Path(__file__).parent.parent
REPORT = ROOT / "tests" / "MUTANTS.md"
WANTED = 0.95
WORKERS = os.environ.get("MUTANT_WORKERS", str(os.cpu_count()))
SECONDS = float(
    os.environ.get("MUTANT_SECONDS", "inf")
)  # the fastest tests that take so long together, for a first run
KILLED = 1  # the exit code of pytest when a test failed
# The tests of modules without a test file of their own, and of those whose tests are in several files.
TESTED_BY = {
    "sde.py": ["test_sde.py", "test_sde_options.py"],
    "training/driver.py": [
        f"training/test_{name}.py" for name in ("callbacks", "driver", "evaluation", "loop", "sweep")
    ],
    "training/loop.py": ["training/test_callbacks.py", "training/test_driver.py", "training/test_loop.py"],
    "training/program.py": ["training/test_evaluation.py", "training/test_loop.py", "training/test_program.py"],
}
# Tests that start processes or take minutes. No mutant is tested by them.
SLOW = ["killed", "second_run", "thousand", "every_process", "neither_grows", "two_processes", "one_process_writes"]
SLOW += ["every_mesh", "eight_devices"]
# Modules whose tests use all the devices there are. They get eight.
ON_DEVICES = ["devices.py"]
INTRODUCTION = """# Mutants

Written by `make mutants`, except for the reasons in the last column. A mutant is the code with one small change, such
as `<` for `<=`, `+` for `-`, a number plus one, `None` for an argument, or an argument left out. It is killed when a
doctest of its module or a test in the module's own test file (for some modules the files in `TESTED_BY` of
tests/mutants.py) fails or runs out of time; tests of other modules do not count. Text is not mutated: it is the wording
of messages. The commit is the one that last changed the module when its mutants were run. In all rows but brownian,
rates, training/divergence and training/record a mutant had the fastest of its tests, three to ten seconds of them
(`MUTANT_SECONDS`), and survivors for which a test was added then had that test. So a slower test may kill some that
survived.
Rows were run at different times. The row "all" is the score of today's code if no module has changed since the commit
in its row.

"""


def own_tests(path: Path) -> list[str]:
    """The module itself, for its doctests, and the files with its tests."""
    module = path.relative_to("dmlmc")
    own = [str(module.with_name(f"test_{module.name}"))]
    return [str(path), *(f"tests/{file}" for file in TESTED_BY.get(str(module), own))]


class Runner(PytestRunner):
    """Run the fastest tests first, each mutant in a process forked from one that has imported dmlmc."""

    def warm_up(self):
        # Collect a module that makes no array, because JAX's threads do not survive a fork.
        with change_cwd("mutants"):
            self.execute_pytest(["--collect-only", "-qqq", "dmlmc/rates.py"])
        gc.freeze()  # pytest collects garbage twice in every process, which is most of what a short test takes

    def run_stats(self, *, tests):
        import pytest  # late, because pytest must first rewrite the assertions of its plugins

        pytest.Item._nodeid = property(lambda item: item.nodeid)  # mutmut 3.8 uses the name from before pytest 9.2
        return super().run_stats(tests=tests)

    def run_tests(self, *, mutant_name, tests):
        import jax

        # Read the programs of the original code from the cache, but write none: other mutants could read half of it.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)
        seconds = state().duration_by_test
        fastest = sorted(tests, key=seconds.get)
        within = itertools.accumulate(map(seconds.get, fastest))
        chosen = [test for test, until in zip(fastest, within, strict=True) if until <= SECONDS]
        # mutmut allows for the seconds of all tests, minutes in which a mutant that does not end computes on.
        limit = math.ceil(10 + 5 * sum(map(seconds.get, chosen)))
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
        return super().run_tests(mutant_name=mutant_name, tests=chosen or fastest[:1])


def mutate_decorated_functions() -> None:
    """Let mutmut mutate decorated functions, which it skips. Most code of an estimator is in one."""
    skip, arrange = file_mutation.MutationVisitor._skip_node_and_children, file_mutation.function_trampoline_arrangement

    def skip_no_function(visitor, node):
        return not isinstance(node, libcst.FunctionDef) and skip(visitor, node)

    def arrange_undecorated(function, mutants, class_name):
        before, (switch, *variants), after, names = arrange(function.with_changes(decorators=[]), mutants, class_name)
        switch = switch.with_changes(decorators=[*function.decorators, *switch.decorators])
        return before, [switch, *variants], after, names

    file_mutation.MutationVisitor._skip_node_and_children = skip_no_function
    file_mutation.function_trampoline_arrangement = arrange_undecorated


def test_only(path: Path) -> None:
    """Let mutmut test the mutants of one module that are not known to be killed."""
    collect = mutmut.collect_source_file_mutation_data

    def collect_from_module(*, mutant_names):
        mutants, modules = collect(mutant_names=mutant_names)
        return [(of, name, None) for of, name, code in mutants if Path(of.path) == path and code != KILLED], modules

    mutmut.collect_source_file_mutation_data = collect_from_module


def run(path: Path, *expression: str) -> None:
    """Test the mutants of one module that are not known to be killed, with all its tests or with those chosen."""
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(ROOT / "mutants" / "compiled")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    if str(path.relative_to("dmlmc")) in ON_DEVICES:
        os.environ["JAX_NUM_CPU_DEVICES"] = "8"
    # No deadline, which a busy machine would miss; the same examples for every mutant; no shrinking of failures.
    phases = set(Phase) - {Phase.shrink, Phase.explain}
    settings.register_profile("mutants", deadline=None, derandomize=True, database=None, phases=phases)
    mutators.mutation_operators.remove((libcst.BaseString, mutators.operator_string))
    mutate_decorated_functions()
    isolation.PytestRunner = Runner
    limit = isolation.register_timeout  # on a busy machine only seconds of CPU time say that a mutant does not end
    isolation.register_timeout = lambda pid, seconds: limit(pid, 10 * seconds)
    test_only(path)
    config().pytest_add_cli_args_test_selection = own_tests(path)
    # mutmut copies the docstring to every mutant of a function: its examples are to run once.
    wanted = ["(not __mutmut or __mutmut_orig)", *(f"not {name}" for name in SLOW), *(f"({one})" for one in expression)]
    config().pytest_add_cli_args += ["-k", " and ".join(wanted)]
    (ROOT / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)  # which tests call what, for another module
    # The run that finds out which tests call what has shown that they pass: not twice, and no forced failure.
    isolation.ForkServerRunner.run_clean_tests = lambda runner, tests: 0
    mutmut.run_forced_fail_test = lambda runner: None
    mutmut.cli(["run", "--max-children", WORKERS], standalone_mode=False)


def change(mutant: str, path: Path) -> tuple[str, str]:
    """The function of a mutant and its change, in the format of the report."""
    name, owner = diff_apply.orig_function_and_class_names_from_key(mutant)
    lines = [line for line in diff_apply.get_diff_for_mutant(mutant, path=path).splitlines()[2:] if line[0] in "-+"]
    old, new = (" ".join(line[1:].strip() for line in lines if line[0] == sign) for sign in "-+")
    where = ".".join(filter(None, [*path.with_suffix("").parts[1:], owner, name]))
    return where, f"`{old}` → `{new}`".replace("|", "\\|")


def report(path: Path | None) -> bool:
    """Write what was found about a module into the report. Return whether enough are killed, and all others explained.

    The other modules keep their rows and survivors, and all survivors their reasons.
    """
    text = REPORT.read_text() if REPORT.exists() else ""
    numbers = re.findall(r"^\| (\S+) \| (\d+) \| \d+ \| (\d+) \| (\d+) \| \S+ \| (\w+) \|$", text, re.M)
    rows = {module: (int(mutants), int(left), late, commit) for module, mutants, late, left, commit in numbers}
    known = re.findall(r"^\| (\S+) \| (`.+`) \| (.*) \|$", text, re.M)
    reasons = {(where, what): reason for where, what, reason in known}
    survivors = list(reasons)
    if path is not None:
        found = SourceFileMutationData(path=path)
        found.load()
        statuses = {mutant: mutmut.status_by_exit_code[code] for mutant, code in found.exit_code_by_key.items()}
        here = [mutant for mutant, status in statuses.items() if status not in ("killed", "timeout")]
        module, late = path.relative_to("dmlmc").with_suffix(""), list(statuses.values()).count("timeout")
        survivors = [one for one in survivors if not one[0].startswith(".".join(module.parts) + ".")]
        survivors += [change(mutant, path) for mutant in here]
        log = subprocess.run(
            ["git", "log", "-1", "--format=%h", "--", path], capture_output=True, text=True, check=True
        )
        rows[str(module)] = len(statuses), len(here), late, log.stdout.strip()
    total = *(sum(row[place] for row in rows.values()) for place in range(2)), "", ""
    lines = ["| module | mutants | killed | by running out of time | survivors | share killed | commit |"]
    lines.append("| --- " * 7 + "|")
    for module, (mutants, left, late, commit) in [*sorted(rows.items()), ("all", total)]:
        share = f"{1 - left / mutants:.1%}"
        lines.append(f"| {module} | {mutants} | {mutants - left} | {late} | {left} | {share} | {commit} |")
    lines += ["", "## Survivors", "", "| function | change | why it does not matter |", "| --- | --- | --- |"]
    lines += [f"| {where} | {what} | {reasons.get((where, what), '')} |" for where, what in sorted(survivors)]
    REPORT.write_text(INTRODUCTION + "\n".join(lines) + "\n")
    print(*lines, sep="\n")
    return total[1] <= (1 - WANTED) * total[0] and all(map(reasons.get, survivors))


def main(arguments: list[str]) -> int:
    """Test one module, or all from a clean start, each in a process of its own, and report."""
    if arguments == ["--report"]:
        return not report(None)
    if arguments:
        run(Path(arguments[0]), *arguments[1:])
        return not report(Path(arguments[0]))
    shutil.rmtree("mutants", ignore_errors=True)
    for path in sorted(mutmut.walk_mutatable_files()):
        subprocess.run([sys.executable, "-m", "tests.mutants", path], cwd=ROOT, check=False)
    return not report(None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
