"""Mutation testing: make one small change to the code at a time, and count the changes that its tests detect.

``make mutants`` runs mutmut on the modules in ``tool.mutmut`` of pyproject.toml and writes tests/MUTANTS.md, where the
reasons are written by hand. ``.venv/bin/python -m tests.mutants "dmlmc.rates*"`` tests the mutants of one module again.
"""

import os
import re
import shutil
import sys
from pathlib import Path

import libcst
from hypothesis import Phase, settings
from mutmut import __main__ as mutmut
from mutmut.mutation import diff_apply, file_mutation, mutators
from mutmut.mutation.data import SourceFileMutationData
from mutmut.runners.harness import PytestRunner
from mutmut.state import state
from mutmut.workers import isolation

ROOT = Path(__file__).parent.parent
REPORT = ROOT / "tests" / "MUTANTS.md"
WANTED = 0.9
INTRODUCTION = """# Mutants

Written by `make mutants`, except for the reasons in the last column. A mutant is the code with one small change, such
as `<` for `<=`, `+` for `-`, a number plus one, `None` for an argument, or an argument left out. It is killed when a
doctest of its module or a test in the module's own test file fails or runs out of time; tests of other modules do not
count. Text is not mutated: it is the wording of messages.

"""


def own_tests(module: str) -> tuple[str, str]:
    """The file with the doctests of a module and the file with its tests, in the same folder of tests/."""
    *folders, name = module.split(".")[1:]
    return str(Path("dmlmc", *folders, f"{name}.py")), str(Path("tests", *folders, f"test_{name}.py"))


class OwnTests(PytestRunner):
    """Run only the tests of the mutant's own module, fastest first."""

    def run_stats(self, *, tests):
        import pytest  # late, because pytest must first rewrite the assertions of its plugins

        pytest.Item._nodeid = property(lambda item: item.nodeid)  # mutmut 3.8 uses the name from before pytest 9.2
        return super().run_stats(tests=tests)

    def run_tests(self, *, mutant_name, tests):
        import jax

        # Read the programs of the original code from the cache, but write none: other mutants could read half of it.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)
        if mutant_name:
            own = own_tests(mutant_name.rpartition(".")[0])  # e.g. dmlmc.theory.theorem.x_bound__mutmut_1
            tests = [test for test in tests if test.startswith(own)]
            tests.sort(key=state().duration_by_test.get)
        return super().run_tests(mutant_name=mutant_name, tests=tests)


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


def run(names: list[str]) -> None:
    """Test the mutants whose names match, or all mutants from a clean start."""
    if not names:
        shutil.rmtree("mutants", ignore_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(ROOT / "mutants" / "compiled")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    # No deadline, which a busy machine would miss; the same examples for every mutant; no shrinking of failures.
    phases = set(Phase) - {Phase.shrink, Phase.explain}
    settings.register_profile("mutants", deadline=None, derandomize=True, database=None, phases=phases)
    mutators.mutation_operators.remove((libcst.BaseString, mutators.operator_string))
    mutate_decorated_functions()
    isolation.PytestRunner = OwnTests
    mutmut.cli(["run", *names], standalone_mode=False)


def change(mutant: str, path: Path) -> tuple[str, str]:
    """The function of a mutant and its change, in the format of the report."""
    name, owner = diff_apply.orig_function_and_class_names_from_key(mutant)
    lines = [line for line in diff_apply.get_diff_for_mutant(mutant, path=path).splitlines()[2:] if line[0] in "-+"]
    old, new = (" ".join(line[1:].strip() for line in lines if line[0] == sign) for sign in "-+")
    where = ".".join(filter(None, [path.stem, owner, name]))
    return where, f"`{old}` → `{new}`".replace("|", "\\|")


def report() -> bool:
    """Write the report, keep its reasons. Return whether enough are killed and every survivor has a reason."""
    known = re.findall(r"^\| (\S+) \| (`.+`) \| (.*) \|$", REPORT.read_text() if REPORT.exists() else "", re.M)
    reasons = {(where, change): reason for where, change, reason in known}
    rows, survivors, total, alive = [], [], 0, 0
    for path in sorted(mutmut.walk_mutatable_files()):
        found = SourceFileMutationData(path=path)
        found.load()
        statuses = {mutant: mutmut.status_by_exit_code[code] for mutant, code in found.exit_code_by_key.items()}
        here = [mutant for mutant, status in statuses.items() if status not in ("killed", "timeout")]
        rows.append((path.stem, len(statuses), len(here)))
        survivors += [change(mutant, path) for mutant in here]
        total, alive = total + len(statuses), alive + len(here)
    lines = ["| module | mutants | killed | survivors | share killed |", "| --- | --- | --- | --- | --- |"]
    for module, mutants, left in [*rows, ("all", total, alive)]:
        lines.append(f"| {module} | {mutants} | {mutants - left} | {left} | {1 - left / mutants:.1%} |")
    lines += ["", "## Survivors", "", "| function | change | why it does not matter |", "| --- | --- | --- |"]
    lines += [f"| {where} | {change} | {reasons.get((where, change), '')} |" for where, change in survivors]
    REPORT.write_text(INTRODUCTION + "\n".join(lines) + "\n")
    print(*lines, sep="\n")
    return all(left <= (1 - WANTED) * mutants for _, mutants, left in rows) and all(map(reasons.get, survivors))


if __name__ == "__main__":
    if sys.argv[1:] != ["--report"]:
        run(sys.argv[1:])
    sys.exit(not report())
