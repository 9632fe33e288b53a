import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, PartitionSpec

import dmlmc
from dmlmc.devices import one_device
from dmlmc.training.evaluation import Start
from dmlmc.training.program import PRINTED, Program, _by_seed, digest, fingerprint, same_in_every_process
from tests.helpers.runs import HALVING

ROOT = Path(__file__).parents[2]


# A traced program on a mesh with two axes, whose names jax may print as a set. It imports no more than it needs.
PRINT_FINGERPRINT = """
import jax
from jax.sharding import Mesh, PartitionSpec
import numpy as np
from dmlmc.training.program import fingerprint

mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("seeds", "samples"))
program = jax.shard_map(jax.numpy.sin, mesh=mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec(), check_vma=False)
print(fingerprint(jax.jit(program).trace(jax.ShapeDtypeStruct((2,), "float32")), ()))
"""


def test_a_program_has_the_same_fingerprint_in_every_process():
    """Python orders sets of strings by a hash that is random in each process."""
    found, command = set(), [sys.executable, "-c", PRINT_FINGERPRINT]
    for seed in ("1", "3"):  # two seeds that order {"seeds", "samples"} differently
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    assert len(found) == 1


def test_a_constant_changes_the_fingerprint():
    programs = [jax.jit(lambda x, rate=rate: rate * x).trace(1.0) for rate in (0.1, 0.2)]
    assert fingerprint(programs[0], ()) != fingerprint(programs[1], ())
    assert fingerprint(programs[0], jnp.ones(2)) != fingerprint(programs[0], jnp.zeros(2))


def test_a_digest_tells_values_shapes_dtypes_keys_and_text_apart():
    one = np.arange(4)
    others = [one + 1, one.reshape(2, 2), one.astype(np.uint64), [one, one[:0]], jax.random.key(0), jax.random.key(1)]
    found = {digest(arrays) for arrays in (one, *others)} | {digest(one, "text"), digest(one, "other text")}
    assert len(found) == 9
    assert digest(one) == digest({"named": one}) == digest(one, "")
    assert digest(jax.random.key(1)) == digest(jax.random.key_data(jax.random.key(1)))


def test_of_a_printed_program_only_addresses_and_the_order_of_sets_are_changed():
    assert same_in_every_process("<f at 0x00fa> 0xg a0x1") == "<f at > 0xg a"
    printed = "frozenset({'b', 'a', 'c'}) {'b', 'a'} frozenset({'d'})"
    assert same_in_every_process(printed) == "frozenset('a', 'b', 'c') {'b', 'a'} frozenset('d')"


def test_the_state_of_seeds_is_shared_along_the_axes_that_a_mesh_has():
    specs = {"one": PartitionSpec("samples"), "two": PartitionSpec(None, "samples")}
    both, samples = (jax.sharding.AbstractMesh((1,) * len(axes), axes) for axes in (("seeds", "samples"), ("samples",)))
    assert _by_seed(specs, both) == {
        "one": PartitionSpec("seeds", "samples"),
        "two": PartitionSpec("seeds", None, "samples"),
    }
    assert _by_seed(specs, samples) == {
        "one": PartitionSpec(None, "samples"),
        "two": PartitionSpec(None, None, "samples"),
    }


LOSS = dmlmc.QuadraticLoss(dimension=2, L=1.0, M=1.0, rates=dmlmc.Rates(1.8, 1.0, 1.0))


def with_metrics(params):
    return LOSS.mean(params, 0), {"b": params[0], "a": params[1]}


def two_seeds(evaluate=with_metrics, start=None, rate=0.1, seed=0):
    start = start or Start(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    keys = jax.random.split(jax.random.key(seed), 2)
    return Program(dmlmc.naive(LOSS, 0, 1), optax.sgd(rate), start, keys, evaluate=evaluate, mesh=one_device())


def test_a_program_is_known_by_its_first_step():
    made = two_seeds()
    found = made.first_step()
    start = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    estimate = dmlmc.naive(LOSS, 0, 1).estimate
    by_hand = jax.jit(lambda x, key, step: x - 0.1 * estimate(x, (), step, key)[0])
    after = [by_hand(x, key, 0) for x, key in zip(start, made.keys, strict=True)]
    np.testing.assert_array_equal(found["start"][0], start)
    np.testing.assert_allclose(found["parameters"][0], after, rtol=1e-6)
    np.testing.assert_allclose(found["loss"][0], [LOSS.mean(x, 0) for x in after], rtol=1e-5)
    assert [len(arrays) for arrays in found.values()] == [1, 1, 1, 2] and made.metrics == ["a", "b"]
    np.testing.assert_allclose(found["metrics"], np.transpose(after)[::-1], rtol=1e-6)
    np.testing.assert_array_equal(made.params(made.initial), start)  # its memory was not reused
    late = two_seeds(start=Start(jnp.array(start), step=7)).first_step()
    expected = [by_hand(x, key, 7) for x, key in zip(start, made.keys, strict=True)]
    np.testing.assert_allclose(late["parameters"][0], expected, rtol=1e-6)


def test_what_decides_the_numbers_of_a_program_is_in_its_fingerprints():
    start = Start(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    known, program, validation = two_seeds().fingerprints(), *PRINTED
    assert list(known) == ["mesh", "metrics", program, validation, "key or start"]
    assert known["mesh"] == "{'seeds': 1}" and known["metrics"] == "a, b"
    assert two_seeds().fingerprints() == known
    for options, differs in (
        ({"rate": 0.2}, {program}),
        ({"seed": 1}, {"key or start"}),
        ({"start": start._replace(step=1)}, {"key or start"}),
        ({"start": start._replace(params=jnp.ones((2, 2)))}, {"key or start"}),
        ({"evaluate": lambda params: (LOSS.mean(params, 1), with_metrics(params)[1])}, {validation}),
        ({"evaluate": None}, {"metrics", validation}),
    ):
        other = two_seeds(**options).fingerprints()
        assert {name for name in known if other[name] != known[name]} == differs
    assert other[validation] == "none" and other["metrics"] == ""


def test_without_an_evaluation_the_loss_of_every_seed_is_nan():
    made = two_seeds(evaluate=None)
    losses, metrics = made.evaluate(made.initial)
    assert np.isnan(losses).tolist() == [True, True] and metrics == {} and made.metrics == []
    assert made.values(0.1).tolist() == [0.1] and made.values(3).dtype == float


def test_a_program_is_compiled_once_and_what_is_not_trained_is_kept():
    start = Start({"x": jnp.array([[1.0, 2.0], [3.0, 4.0]]), "n": 3, "name": "kept"})
    keys = jax.random.split(jax.random.key(0), 2)
    made = Program(HALVING, optax.sgd(0.5), start, keys, evaluate=None, mesh=one_device())
    made.compile()
    compiled = made._advance
    made.compile()
    assert made._advance is compiled and np.isnan(made.evaluate(made.initial)[0]).all()
    found = made.params(made.advance(made.initial, 0, 1))
    assert found["x"].tolist() == [[0.5, 1.0], [1.5, 2.0]] and (found["n"], found["name"]) == (3, "kept")


def test_a_program_goes_on_with_copies_of_the_states_of_its_start():
    counting = dmlmc.GradientEstimator(
        lambda params: jnp.zeros(2), lambda params, state, step, key: (params, state + 1)
    )
    optimiser, params, keys = optax.sgd(0.5, momentum=0.5), jnp.ones((2, 3)), jax.random.split(jax.random.key(0), 2)
    momentum = jax.tree.map(lambda leaf: leaf + 4, jax.vmap(optimiser.init)(params))
    start = Start(params, momentum, jnp.full((2, 2), 5.0))
    made, fresh = (
        Program(counting, optimiser, given, keys, evaluate=None, mesh=one_device()) for given in (start, Start(params))
    )
    for given, state, trace in ((fresh.initial, 0.0, 0.0), (made.initial, 5.0, 4.0)):
        assert np.all(given.estimator_state == state) and np.all(given.optimiser_state[0].trace == trace)
    made.compile()
    run = made.advance(made.initial, 0, 1)
    assert np.all(run.estimator_state == 6) and np.all(run.optimiser_state[0].trace == 3)
    assert made.initial.params.is_deleted() and made.initial.estimator_state.is_deleted()  # their memory was reused
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(start[:3]))


def test_seeds_that_are_trained_one_after_the_other_share_their_memory():
    estimator, keys = dmlmc.naive(LOSS, 0, 4096), jax.random.split(jax.random.key(0), 8)
    start = Start(jnp.ones((8, 2)))

    def evaluate(params):
        return jnp.sort(params[0] * jnp.arange(4096.0))[7], {}

    def bytes_needed(at_once):
        made = Program(
            estimator, optax.sgd(0.1), start, keys, evaluate=evaluate, mesh=one_device(), seeds_at_once=at_once
        )
        made.compile()
        return np.array([one.memory_analysis().temp_size_in_bytes for one in (made._advance, made._evaluate)])

    all_at_once, four, one = (bytes_needed(at_once) for at_once in (None, 4, 1))
    assert (all_at_once > 1.5 * four).all() and (four > 2 * one).all()


def specs(traced):
    """How devices share the arguments and the results of a traced program."""
    (equation,) = [one for one in traced.jaxpr.eqns if one.primitive.name == "shard_map"]
    assert equation.params["check_vma"] is False
    return tuple(equation.params["in_specs"]), tuple(equation.params["out_specs"])


@pytest.mark.parametrize(
    ("axes", "seeds", "state"), [(("seeds", "samples"), ["seeds"], ["seeds"]), (("samples",), [], [None])]
)
def test_devices_share_the_seeds_and_the_states_of_a_program(axes, seeds, state):
    mesh = Mesh(np.array(jax.devices()[:1]).reshape([1] * len(axes)), axes)
    estimator = dmlmc.GradientEstimator(
        lambda params: params["n"] * jnp.ones(1),
        lambda params, state, step, key: ({"x": params["n"] * params["x"], "n": None}, state),
        state_spec=PartitionSpec("samples"),
    )
    start, keys = Start({"x": jnp.ones((2, 3)), "n": 3}), jax.random.split(jax.random.key(0), 2)
    made = Program(
        estimator, optax.sgd(0.5), start, keys, evaluate=lambda params: (params["n"] * params["x"][0], {}), mesh=mesh
    )
    seeds, state, whole = PartitionSpec(*seeds), PartitionSpec(*state, "samples"), PartitionSpec()
    assert made.keys.sharding == jax.sharding.NamedSharding(mesh, seeds)
    assert specs(made._advance) == ((seeds, state, seeds, seeds, whole, whole), (seeds, state, seeds))
    assert specs(made._evaluate) == ((seeds,), (seeds,))
    assert made.initial.estimator_state.tolist() == [[3.0], [3.0]]


def test_a_validation_with_other_constants_is_another_one():
    start, keys = Start(jnp.array([[1.0, 2.0]])), jax.random.split(jax.random.key(0), 1)
    for weights in (np.array([1.0, 1.0], np.float32), np.array([0.0, 2.0], np.float32)):
        given = jnp.array(weights)
        evaluate = lambda params, given=given: (jnp.dot(params, given), {})  # noqa: E731
        made = Program(HALVING, optax.sgd(0.5), start, keys, evaluate=evaluate, mesh=one_device())
        made.compile()
        losses, _ = made.evaluate(made.initial)
        assert losses.tolist() == [weights @ [1.0, 2.0]] and losses.dtype == np.float64


def program(samples, factor):
    """A program of one seed with a validation that depends on ``factor``."""
    rates = dmlmc.Rates(1.8, 1.0, 1.0)
    loss = dmlmc.QuadraticLoss(dimension=2, L=1.0, M=1.0, rates=rates)
    made = Program(
        dmlmc.naive(loss, 1, samples), optax.sgd(0.1), Start(jnp.ones((1, 2))), jax.random.split(jax.random.key(0), 1),
        evaluate=lambda params: (factor * loss.mean(params, 1), {}), mesh=one_device(),
    )  # fmt: skip
    made.compile()
    return made


def test_methods_that_are_validated_alike_compile_the_validation_once():
    one, other, different = program(1, 2.0), program(3, 2.0), program(3, 3.0)
    assert other._evaluate is one._evaluate and different._evaluate is not one._evaluate
    losses = [float(made.evaluate(made.initial)[0][0]) for made in (one, other, different)]
    assert losses == [losses[0], losses[0], 1.5 * losses[0]]
