"""Small runs on several devices. They need new processes, because JAX fixes its devices when it starts.

``python -m tests.helpers.device_runs eight OUTPUT`` has eight devices. ``... two OUTPUT PROCESS PORT`` is one of two
processes with two devices each. The results go to the file OUTPUT.
"""

import faulthandler
import json
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

import dmlmc
from dmlmc.devices import even_mesh
from tests.helpers.problems import neural_loss, neural_params

RATES = dmlmc.Rates(1.8, 1.0, 1.0)
PLAN = dmlmc.plan(
    RATES, 1, samples=[13, 3], allocation="paper"
)  # not divisible by 2, 4 or 8, and fewer than devices at level 1
OTHER = dmlmc.plan(RATES, 2, samples=[13, 5, 3], periods=[1, 4, 2], allocation="paper")  # level 2 is new
STEPS, SEEDS = 9, 8


class Quadratic(dmlmc.QuadraticLoss):
    def samples_at_once(self, level):
        return 2  # so that a device has several chunks


LOSS = Quadratic(dimension=3, L=1.0, M=1.0, rates=RATES)
ESTIMATORS = {
    "naive": lambda loss, **mesh: dmlmc.naive(loss, 1, 11, **mesh),
    "MLMC": lambda loss, **mesh: dmlmc.mlmc(loss, PLAN, **mesh),
    "delayed MLMC": lambda loss, **mesh: dmlmc.delayed_mlmc(loss, PLAN, **mesh),
}


def trained(estimator, steps=STEPS, params=None, seeds=SEEDS, **options):
    """Parameters and losses of every seed, as lists."""
    settings = {"validation": lambda params: LOSS.mean(params, 1), "evaluate_every": 4, "progress": False}
    params = jnp.arange(1.0, 4.0) if params is None else params
    keys = jr.split(jr.key(0), seeds)
    found, record = dmlmc.train(estimator, optax.sgd(0.1), params, steps, keys, **{**settings, **options})
    return numbers(found) + record.loss.dropna().tolist()


def changed_plan(mesh):
    """Numbers of a run that goes on with another plan, and that the leading process stops at step 8."""
    seen = []
    trained(ESTIMATORS["delayed MLMC"](LOSS), 5, mesh=mesh, callback=seen.append)
    held = numbers(seen[-1].estimator_state)
    second = dmlmc.delayed_mlmc(LOSS, OTHER, mesh=mesh)
    answers = {"callback": lambda info: jax.process_index() == 0 and info.step >= 8, "mesh": mesh}
    return held + trained(second, params=seen[-1], metrics=lambda params: {"first": params[0]}, **answers)


def one_of_eight_diverges(mesh):
    """Where the seeds diverged, or -1, and the losses of the others."""
    far = jnp.ones((SEEDS, 3)).at[6].set(jnp.finfo(float).max)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _, record = dmlmc.train(
            ESTIMATORS["delayed MLMC"](LOSS), optax.sgd(0.1), far, STEPS, jr.split(jr.key(0), SEEDS), mesh=mesh,
            params_per_seed=True, validation=lambda params: LOSS.mean(params, 1), evaluate_every=4, progress=False,
        )  # fmt: skip
    assert len(told) == int(jax.process_index() == 0), told
    return record.diverged_at.fillna(-1).tolist() + record[record.seed != 6].loss.tolist()


def streamed(mesh, directory=None):
    """Numbers of a streaming run, perhaps one that is resumed, and a gradient of a hand-written loop."""
    params = {"pull": jnp.array(0.5), "scale": jnp.array([0.3, 0.4])}
    loss = dmlmc.SDELoss(  # compiles faster than a neural SDE, and streaming compiles longest
        drift=lambda t, y, params: -params["pull"] * y,
        diffusion=lambda t, y, params: jnp.diag(params["scale"] * (1 + 0.5 * jnp.sin(y + t))),
        terminal=lambda y, params: jnp.sum((y - 1) ** 2),
        y0=jnp.array([0.5, -0.2]), t1=1.0, coarsest_steps=2, noise_dim=2,
    )  # fmt: skip
    estimator = dmlmc.streaming_mlmc(loss, dmlmc.plan(RATES, 2, samples=[5, 3, 2]), mesh=mesh)
    settings = {"validation": None, "evaluate_every": 4, "seeds": 2, "mesh": mesh}
    if directory is not None:
        trained(estimator, 7, params, directory=directory, **settings)
    found = trained(estimator, 12, params, directory=directory, **settings)
    state = estimator.init(params)
    for step in range(7):
        grads, state = estimator.estimate(params, state, step, jr.key(5))
    return found + numbers(grads)


def looped(estimator, params):
    """The gradients and states of a hand-written SGD loop."""
    state, found = estimator.init(params), []
    for step in range(5):
        grads, state = estimator.estimate(params, state, step, jr.key(5))
        found += numbers((grads, state))
        params = jax.tree.map(lambda leaf, grad: leaf if grad is None else leaf - 0.1 * grad, params, grads)
    return found


def numbers(tree):
    leaves = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]
    return np.concatenate([np.ravel(leaf) for leaf in leaves]).tolist()


def eight():
    """Results by mesh and method. Compilation takes most of the time, so not every mesh has every run."""
    meshes = {
        "none": None,
        "8 samples": dmlmc.mesh(),
        "4 samples, 2 seeds": dmlmc.mesh(samples=4, seeds=2),
        "8 seeds": dmlmc.mesh(samples=1, seeds=8),
    }
    assert dict(meshes["8 samples"].shape) == {"seeds": 1, "samples": 8}
    methods = {
        "none": ESTIMATORS,
        "8 samples": ["MLMC", "delayed MLMC"],
        "4 samples, 2 seeds": ["naive", "delayed MLMC"],
        "8 seeds": ["delayed MLMC"],  # each device has whole gradients
    }
    found = {}
    for name, mesh in meshes.items():
        found[name] = {method: trained(ESTIMATORS[method](LOSS), mesh=mesh) for method in methods[name]}
    other_meshes = {
        "3 samples, by jax.make_mesh": jax.make_mesh((3,), ("samples",), devices=jax.devices()[:3]),
        "4 seeds, no axis for samples": jax.sharding.Mesh(np.array(jax.devices()[4:]), ("seeds",)),
    }
    for name, mesh in other_meshes.items():
        found[name] = {"naive": trained(ESTIMATORS["naive"](LOSS, mesh=mesh))}
    loss, params = neural_loss(jnp.float64), neural_params(jnp.float64)
    for name in ("none", "4 samples, 2 seeds"):
        found[name]["delayed MLMC, loop"] = looped(ESTIMATORS["delayed MLMC"](LOSS, mesh=meshes[name]), jnp.ones(3))
        found[name]["changed plan"] = changed_plan(meshes[name])
        found[name]["diverged"] = one_of_eight_diverges(meshes[name])
        found[name]["streaming MLMC"] = streamed(meshes[name])
        neural = dmlmc.naive(loss, 1, 5, mesh=meshes[name])
        found[name]["neural SDE"] = trained(neural, 3, params, 2, validation=None, evaluate_every=3)
        found[name]["neural SDE"] += numbers(neural.estimate(params, (), 0, jr.key(5)))
    try:
        trained(ESTIMATORS["naive"](LOSS), mesh=dmlmc.mesh(samples=1, seeds=3))
    except ValueError as error:
        found["3 seeds"] = str(error)
    found["even"] = {seeds: dict(even_mesh(seeds).shape) for seeds in (1, 6, 7, 12)}
    return found


def two(output):
    """Results by mesh on one of two processes: a run, a loop, a resumed run, and a run that diverges."""
    samples, both = dmlmc.mesh(), dmlmc.mesh(samples=2, seeds=2)
    assert samples.is_multi_process and both.is_multi_process
    make = ESTIMATORS["delayed MLMC"]
    found = {"4 samples": {"delayed MLMC": trained(make(LOSS), mesh=samples, progress=True)}}
    found["4 samples"]["delayed MLMC, loop"] = looped(make(LOSS, mesh=samples), jnp.ones(3))
    resumed, directory = make(LOSS, mesh=both), output.parent / "shared"
    trained(resumed, 5, directory=directory)
    found["2 samples, 2 seeds"] = {"delayed MLMC": trained(resumed, directory=directory)}
    found["2 samples, 2 seeds"]["changed plan"] = changed_plan(both)
    found["2 samples, 2 seeds"]["diverged"] = one_of_eight_diverges(both)
    found["2 samples, 2 seeds"]["streaming MLMC"] = streamed(both, output.parent / "streamed")
    naive = ESTIMATORS["naive"](LOSS)
    far = jnp.ones((SEEDS, 3)).at[6].set(jnp.finfo(float).max)
    try:
        trained(naive, params=far, params_per_seed=True, validation=None, mesh=both, on_divergence="raise")
    except dmlmc.DivergenceError as error:
        found["error"] = str(error)
    # Without a mesh the processes are independent.
    trained(naive, 2 + jax.process_index(), directory=output.parent / f"alone {jax.process_index()}")
    return found


def main(kind, output, process="0", port="0"):
    faulthandler.dump_traceback_later(240, exit=True)  # do not wait forever for the other process
    if kind == "two":
        address = f"127.0.0.1:{port}"
        jax.distributed.initialize(
            address, 2, int(process), coordinator_bind_address=address, initialization_timeout=240
        )
    assert jax.device_count() == {"eight": 8, "two": 4}[kind]
    output = Path(output)
    output.write_text(json.dumps(eight() if kind == "eight" else two(output)))


if __name__ == "__main__":
    main(*sys.argv[1:])
