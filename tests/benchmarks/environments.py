"""Gradients and SGD steps of SDEs under settings of the environment: ``python -m tests.benchmarks.environments``.

- ``NPROC=1``: XLA splits larger operations over its threads. In the loop of an SDE an operation takes microseconds, and
  cores that wait for each other at each of them can be slower than one core. How much depends on the machine.
- ``XLA_FLAGS=--xla_backend_optimization_level=1``: it compiles faster. At the highest level, which is the default, LLVM
  most likely unrolls short loops, such as those over the units of a small network, before it could vectorise them.

Jax reads both when it starts, so each setting has a process of its own. The processes take turns. Each times itself,
because asking would add to calls that are short.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import product
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import optax

import dmlmc
from dmlmc.calibration.timing import in_turn
from dmlmc.devices import one_device
from dmlmc.experiments import neural_sde, wall_clock
from dmlmc.experiments.wall_clock import AS_IT_IS, LESS_OPTIMISED, ONE_THREAD
from dmlmc.training.evaluation import Start
from dmlmc.training.program import Program, copied
from tests.benchmarks import peers, problem, results

SETTINGS = AS_IT_IS, ONE_THREAD, LESS_OPTIMISED
WAYS = wall_clock.OURS, wall_clock.ENGINES[0]
SEEDS, STEPS = 10, 8
Calls = dict[tuple[str, str], Callable[[], Any]]


def steps_of_neural_sde(*makers: Callable[..., dmlmc.GradientEstimator]) -> dict[str, Program]:
    """Ten seeds of the neural SDE of notebook 04, ready to take steps with each estimator."""
    loss, keys = neural_sde.fitting_loss((0.25, 0.5, 1.0)), jr.split(jr.key(0), SEEDS)
    plan = dmlmc.plan(problem.RATES, 3, level0_samples=16)
    start, programs = Start(eqx.filter_vmap(neural_sde.initial_sde)(keys)), {}
    for make in makers:
        estimator = make(loss, plan)
        made = Program(estimator, optax.adam(1e-3), start, keys, evaluate=None, mesh=one_device())
        made.compile()
        programs[estimator.method] = made
    return programs


def compile_afresh() -> None:
    jax.clear_caches()  # of traces and programs, as in a fresh process
    steps_of_neural_sde(dmlmc.delayed_mlmc)


def served(scale: int) -> Calls:
    """All that is measured, compiled: gradients of deep hedging written both ways, and steps of the neural SDE."""
    calls: Calls = {}
    for name, *case in peers.cases(512 * scale):
        for way in WAYS:
            gradient = problem.of_leaves(peers.WRITTEN[way](*case))
            program, _ = problem.compiled(gradient, problem.LEAVES, problem.KEY)
            calls[name, way] = partial(program, problem.LEAVES, problem.KEY)
    for method, made in steps_of_neural_sde(dmlmc.mlmc, dmlmc.delayed_mlmc, dmlmc.streaming_mlmc).items():
        name = f"{wall_clock.STEP_OF_NEURAL_SDE}, {method}"
        calls[name, WAYS[0]] = lambda made=made: made.advance(copied(made.initial), 0, STEPS)
    calls[wall_clock.COMPILATION, WAYS[0]] = compile_afresh
    return calls


def serve(scale: int) -> None:
    """Say what there is to call. Then call what standard input names, and say how many seconds it took."""
    calls = served(scale)
    print(json.dumps(list(calls)), flush=True)
    for line in sys.stdin:
        timed = in_turn({"asked": calls[tuple(json.loads(line))]}, repeats=1)
        print(timed.seconds["asked"], flush=True)


def started(stack: ExitStack, setting: str, scale: int) -> subprocess.Popen:
    environment = dict([setting.split("=", 1)]) if "=" in setting else {}
    command = [sys.executable, "-m", __spec__.name, str(scale)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return stack.enter_context(subprocess.Popen(command, env=os.environ | environment, **pipes))


def answer(process: subprocess.Popen) -> str:
    line = process.stdout.readline() if process.stdout is not None else ""
    if not line:
        raise RuntimeError("A process that measures gradients has ended early; what it said is above.")
    return line


def ask(process: subprocess.Popen, *which: str) -> float:
    print(json.dumps(which), file=process.stdin, flush=True)
    return float(answer(process))


def measure(scale: int = 1, report: Callable[..., None] = print) -> dict[str, Any]:
    """For each gradient and each step: seconds of every implementation under every setting."""
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        processes = {setting: started(stack, setting, scale) for setting in SETTINGS}
        for process in processes.values():
            known = [tuple(which) for which in json.loads(answer(process))]
        for name in dict.fromkeys(name for name, _ in known):
            ways = [way for way in WAYS if (name, way) in known]
            seconds: dict[str, list[float]] = {}
            for _ in range({"naive": 15, wall_clock.COMPILATION: 3}.get(name, 31)):
                for (setting, process), way in product(processes.items(), ways):
                    seconds.setdefault(f"{way}, {setting}", []).append(ask(process, name, way))
            found[name] = {call: {"repeats": repeats} for call, repeats in seconds.items()}
        for process in processes.values():
            process.stdin.close()
    report(wall_clock.environment_table({"environments": found}), flush=True)
    return found


if __name__ == "__main__":
    if sys.argv[1:]:
        serve(int(sys.argv[1]))
    else:
        results.save({"environments": measure()}, keep=True)
