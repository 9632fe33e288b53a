"""Gradients of any SDE with one thread of XLA, beside one thread per core: ``python -m tests.benchmarks.threads``.

XLA splits larger operations over its threads. In the loop of an SDE an operation takes microseconds, and cores that
wait for each other at each of them can be slower than one core. The environment variable NPROC sets the number of
threads when jax starts. So each number of threads has a process of its own, and the processes take turns.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import jax

from dmlmc.calibration.timing import in_turn
from dmlmc.experiments import wall_clock
from dmlmc.experiments.wall_clock import ALL_THREADS, ONE_THREAD
from tests.benchmarks import peers, problem, results

WAYS = wall_clock.OURS, wall_clock.ENGINES[0]


def serve(cases: list[list[Any]]) -> None:
    """Compile all gradients, then run those that standard input names: one line for each, one line back."""
    programs = {}
    for name, *case in cases:
        for way in WAYS:
            gradient = problem.of_leaves(peers.WRITTEN[way](*case))
            programs[name, way], _ = problem.compiled(gradient, problem.LEAVES, problem.KEY)
    print(flush=True)
    for line in sys.stdin:
        jax.block_until_ready(programs[tuple(json.loads(line))](problem.LEAVES, problem.KEY))
        print(flush=True)


def started(stack: ExitStack, cases: list[list[Any]], **environment: str) -> subprocess.Popen:
    command = [sys.executable, "-m", __spec__.name, json.dumps(cases)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return stack.enter_context(subprocess.Popen(command, env=os.environ | environment, **pipes))


def answer(process: subprocess.Popen) -> None:
    if process.stdout is None or not process.stdout.readline():
        raise RuntimeError("A process that measures gradients has ended early; what it said is above.")


def ask(process: subprocess.Popen, *which: str) -> None:
    print(json.dumps(which), file=process.stdin, flush=True)
    answer(process)


def measure(scale: int = 1, report: Callable[..., None] = print) -> dict[str, Any]:
    """For each gradient: seconds of both implementations with both numbers of threads."""
    cases, found = peers.cases(512 * scale), {}
    with ExitStack() as stack:
        processes = {ALL_THREADS: started(stack, cases), ONE_THREAD: started(stack, cases, NPROC="1")}
        for process in processes.values():
            answer(process)
        for name, *_ in cases:
            pairs = [(way, threads) for way in WAYS for threads in processes]
            calls = {f"{way}, {threads}": partial(ask, processes[threads], name, way) for way, threads in pairs}
            timed = in_turn(calls, repeats=15 if name == "naive" else 31)
            found[name] = {call: timed.loc[call].to_dict() for call in calls}
        for process in processes.values():
            process.stdin.close()
    report(wall_clock.thread_table({"threads": {"gradients": found}}), flush=True)
    return {"gradients": found}


if __name__ == "__main__":
    if sys.argv[1:]:
        serve(json.loads(sys.argv[1]))
    else:
        results.save({"threads": measure()}, keep=True)
