"""Options of SDELoss: a trained start, context, copies, the antithetic coupling, samples at once."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dmlmc
from dmlmc.milstein import Milstein

RATES = dmlmc.Rates(b=1.8, c=1.0, d=1.0)


def geometric(**options):
    """dS = mu S dt + sigma S dW, with the loss S at time 1: its mean is y0 e^mu, and so are its derivatives."""
    settings = {
        "drift": lambda t, y, params, *rest: params["mu"] * y,
        "diffusion": lambda t, y, params, *rest: 0.3 * y[:, None],
        "terminal": lambda y, params, *rest: y[..., 0].sum(),
        "y0": lambda params, *rest: params["start"][None],
        "t1": 1.0,
        "coarsest_steps": 4,
        "noise_dim": 1,
    }
    return dmlmc.SDELoss(**(settings | options))


def params_of(start=1.5, mu=0.2):
    return {"start": jnp.array(start), "mu": jnp.array(mu)}


def test_a_start_that_is_a_parameter_is_trained(x64):
    """Against finite differences on one path, and against the closed form of the mean."""
    loss, params = geometric(), params_of()
    noise = loss.sample(jax.random.key(0), 2)
    for function in (lambda params: loss.loss(params, noise), lambda params: loss.difference(params, noise, 2)):
        gradient = jax.grad(function)(params)["start"]
        shifted = [function(params | {"start": params["start"] + shift}) for shift in (1e-5, -1e-5)]
        assert gradient == pytest.approx(float(shifted[0] - shifted[1]) / 2e-5, rel=1e-7)
    keys = jax.random.split(jax.random.key(1), 4000)
    slopes = jax.vmap(lambda key: jax.grad(loss.loss)(params, loss.sample(key, 6))["start"])(keys)
    assert abs(slopes.mean() - np.exp(0.2)) < 4 * slopes.std() / 4000**0.5 + 1e-3  # the scheme's bias is below 1e-3


def test_a_fixed_start_and_a_function_that_returns_it_are_one_loss(x64):
    fixed, function = geometric(y0=jnp.array([1.5])), geometric()
    noise = fixed.sample(jax.random.key(0), 2)
    np.testing.assert_array_equal(noise, function.sample(jax.random.key(0), 2))
    assert fixed.loss(params_of(), noise) == function.loss(params_of(), noise)
    assert fixed.pair(params_of(), noise) == function.pair(params_of(), noise)


DATA = np.array([0.5, 1.0, 2.0, 4.0])  # NumPy, because the JAX dtype depends on the test's x64 setting


def with_data(**options):
    return geometric(
        y0=lambda params, row: params["start"] * jnp.asarray(DATA)[row][None],
        terminal=lambda y, params, row: (y[0] - jnp.asarray(DATA)[row]) ** 2,
        context=lambda key: jax.random.randint(key, (), 0, len(DATA)),
        **options,
    )


def test_fine_and_coarse_path_share_their_context(x64):
    """Telescoping is exact on the same noise, and the losses are those of a loss without context, row by row."""
    loss, params = with_data(), params_of()
    for seed in range(8):
        noise = loss.sample(jax.random.key(seed), 2)
        increments, row = noise
        fine, coarse = loss.pair(params, noise)
        plain = geometric(
            y0=params["start"] * jnp.asarray(DATA)[row][None],
            drift=lambda t, y, params: params["mu"] * y,
            diffusion=lambda t, y, params: 0.3 * y[:, None],
            terminal=lambda y, params, row=row: (y[0] - jnp.asarray(DATA)[row]) ** 2,
        )
        assert fine == pytest.approx(float(plain.loss(params, increments)), rel=1e-12)
        assert coarse == pytest.approx(float(loss.loss(params, loss.coarsen(noise))), rel=1e-12)
        assert coarse == pytest.approx(float(plain.loss(params, plain.coarsen(increments))), rel=1e-12)


def test_the_mean_over_contexts_is_that_of_a_loop_over_the_data(x64):
    loss, params, count = with_data(), params_of(), 20_000
    noises = loss.batch(jax.random.split(jax.random.key(0), count), 1)
    found = loss.losses(params, noises)
    increments = noises[0]
    by_row = [np.asarray(loss.losses(params, (increments, jnp.full(count, row)))).mean() for row in range(len(DATA))]
    assert abs(found.mean() - np.mean(by_row)) < 4 * float(found.std()) / count**0.5
    assert np.ptp(by_row) > 1  # the rows differ, so a context that is not drawn would show


def two_copies_in_one_state(terminal):
    return dmlmc.SDELoss(
        drift=lambda t, y, params: params["mu"] * y,
        diffusion=lambda t, y, params: jnp.diag(0.3 * y),
        terminal=terminal,
        y0=jnp.array([1.5, 1.5]),
        t1=1.0,
        coarsest_steps=4,
        noise_dim=2,
        observation_times=[0.5, 1.0],
    )


def test_two_copies_are_two_copies_in_one_state(x64):
    copies = geometric(
        copies=2,
        y0=jnp.array([1.5]),
        observation_times=[0.5, 1.0],
        terminal=lambda y, params: jnp.sum((y[0, :, 0] - 1) * (y[1, :, 0] - 1)),  # y has shape (copies, times, dim)
    )
    together = two_copies_in_one_state(lambda y, params: jnp.sum((y[:, 0] - 1) * (y[:, 1] - 1)))
    noise, params = copies.sample(jax.random.key(0), 2), {"mu": jnp.array(0.2)}
    flat = together.sample(jax.random.key(0), 2)
    assert noise.shape == (16, 2, 1) and copies.states(params, noise).shape == (2, 2, 1)
    np.testing.assert_array_equal(noise.reshape(16, 2), flat)
    for one, other in ((copies.loss, together.loss), (copies.pair, together.pair)):
        np.testing.assert_allclose(one(params, noise), other(params, flat), rtol=1e-12)
    ours = jax.grad(lambda params: copies.difference(params, noise, 2))(params)["mu"]
    assert ours == pytest.approx(float(jax.grad(lambda params: together.difference(params, flat, 2))(params)["mu"]))


def test_two_copies_make_the_square_of_a_mean_unbiased(x64):
    """(E S - 2)^2 with E S = 1.5 e^mu; the square of one path would have its variance on top."""
    loss = geometric(copies=2, terminal=lambda y, params: (y[0, 0] - 2) * (y[1, 0] - 2))
    params, count = params_of(), 40_000
    values = loss.losses(params, loss.batch(jax.random.split(jax.random.key(0), count), 5))
    exact = (1.5 * np.exp(0.2) - 2) ** 2
    error = float(values.std()) / count**0.5
    assert abs(float(values.mean()) - exact) < 4 * error + 1e-3 and error < 0.01
    assert 1.5**2 * np.exp(0.4) * (np.exp(0.09) - 1) > 10 * error  # the variance of S would show


def stochastic_volatility(**options):
    """Noise that does not commute: the volatility of the first component has a noise of its own."""
    settings = {
        "drift": lambda t, y, params: jnp.stack([0.0 * y[0], -y[1]]),
        "diffusion": lambda t, y, params: jnp.diag(jnp.stack([params["scale"] * y[0] * jnp.exp(y[1]), 0.8])),
        "terminal": lambda y, params: jax.nn.softplus(4 * (y[0] - 1.1)),
        "y0": jnp.array([1.0, 0.0]),
        "t1": 1.0,
        "coarsest_steps": 4,
        "noise_dim": 2,
    }
    return dmlmc.SDELoss(**(settings | options))


def test_the_antithetic_pair_is_the_mean_of_two_fine_paths_and_the_same_coarse_one(x64):
    plain, antithetic = stochastic_volatility(), stochastic_volatility(antithetic=True)
    params, noise = {"scale": jnp.array(0.3)}, plain.sample(jax.random.key(0), 2)
    swapped = noise.reshape(8, 2, 2)[:, ::-1].reshape(16, 2)
    fine, coarse = antithetic.pair(params, noise)
    by_hand = (plain.loss(params, noise) + plain.loss(params, swapped)) / 2
    assert fine == pytest.approx(float(by_hand), rel=1e-12)
    assert coarse == pytest.approx(float(plain.pair(params, noise)[1]), rel=1e-12)
    assert fine != plain.pair(params, noise)[0]
    assert antithetic.loss(params, noise) == plain.loss(params, noise)  # level 0 is one plain path


def test_the_antithetic_coupling_has_the_mean_of_the_plain_one(x64):
    params, keys = {"scale": jnp.array(0.3)}, jax.random.split(jax.random.key(3), 20_000)
    values = [
        loss.differences(params, loss.batch(keys, 1), 1)
        for loss in (stochastic_volatility(), stochastic_volatility(antithetic=True))
    ]
    gap = np.asarray(values[1] - values[0])
    assert abs(gap.mean()) < 4 * gap.std() / len(gap) ** 0.5
    assert np.var(values[1]) < np.var(values[0]) / 2


def clark_cameron(**options):
    """dX = dW1, dY = scale X dW2: without Levy areas no scheme has a strong order above 1/2."""
    settings = {
        "drift": lambda t, y, params: jnp.zeros_like(y),
        "diffusion": lambda t, y, params: jnp.diag(jnp.stack([jnp.ones_like(y[0]), params["scale"] * y[0]])),
        "terminal": lambda y, params: jnp.exp(-(y[1] ** 2)),
    }
    return stochastic_volatility(**(settings | options))


@pytest.mark.filterwarnings("ignore:Rates. b")  # the plain coupling has b near c
def test_the_antithetic_coupling_gives_b_back_where_noise_does_not_commute(x64):
    params, found = {"scale": jnp.array(1.0)}, {}
    for antithetic in (False, True):
        loss = clark_cameron(antithetic=antithetic)
        _, report = dmlmc.calibrate(
            loss, params, jax.random.key(0), 50_000, max_level=4, steps=[4, 8, 16, 32, 64], drop=1
        )
        found[antithetic] = report.fitted.b
    assert found[False].estimate < 1.4 and found[True].estimate > 1.8, found
    assert found[False].high < found[True].low


@pytest.mark.filterwarnings("ignore:Rates. b")
def test_calibrate_warns_of_a_kink_that_depends_on_the_dynamics(x64):
    """The gradient of a call in a parameter of the dynamics has an indicator: b near 0.5, as noise does not commute."""
    options = {"params": {"scale": jnp.array(1.0)}, "key": jax.random.key(0), "budget": 60_000, "max_level": 4}
    options |= {"steps": [4, 8, 16, 32, 64]}
    _, kinked = dmlmc.calibrate(clark_cameron(terminal=lambda y, params: jnp.maximum(y[1] - 1.0, 0.0)), **options)
    smooth = clark_cameron(terminal=lambda y, params: jax.nn.softplus(5 * (y[1] - 1.0)), antithetic=True)
    _, smoothed = dmlmc.calibrate(smooth, **options)
    assert 0.2 < kinked.fitted.b.estimate < 0.8
    assert any("b = 0." in warning and "kink" in warning for warning in kinked.warnings())
    assert not any("kink" in warning for warning in smoothed.warnings())


def test_commutative_noise_loses_nothing_by_the_antithetic_coupling(x64):
    params, keys = params_of(), jax.random.split(jax.random.key(0), 4000)
    variances = [
        float(jnp.var(loss.differences(params, loss.batch(keys, 3), 3)))
        for loss in (geometric(), geometric(antithetic=True))
    ]
    assert variances[1] <= variances[0] * 1.05


def test_the_accounts_count_both_fine_paths():
    plan = dmlmc.plan(RATES, 2, samples=[8, 4, 2], periods=[1, 1, 1])
    for make in (dmlmc.mlmc, dmlmc.delayed_mlmc, dmlmc.randomised_mlmc):
        assert make(stochastic_volatility(), plan).work(0) == 8 + 4 * 3 + 2 * 6
        assert make(stochastic_volatility(antithetic=True), plan).work(0) == 8 + 4 * 5 + 2 * 10
        assert make(stochastic_volatility(antithetic=True), plan).span(0) == 4.0
    costly = dmlmc.plan(RATES, 2, samples=[8, 4, 2], fine_paths=2)
    assert costly.work(0) == 8 + 4 * 5 + 2 * 10
    measured = {"level0_samples": 1000, "variances": [1.0, 0.1, 0.01]}
    plain, paired = (dmlmc.plan(RATES, 2, **measured, fine_paths=count).without_delay() for count in (1, 2))
    assert paired.samples[1] / plain.samples[1] == pytest.approx((3 / 5) ** 0.5, rel=0.02)


@pytest.mark.parametrize("at_once", [1, 3, 64])
def test_samples_at_once_changes_memory_only(x64, at_once):
    whole, parts = geometric(), geometric(samples_at_once=at_once)
    plan, key = dmlmc.plan(RATES, 1, samples=[7, 4], periods=[1, 1]), jax.random.key(0)
    one, other = (dmlmc.mlmc(loss, plan).estimate(params_of(), (), 0, key)[0] for loss in (whole, parts))
    np.testing.assert_allclose(one["mu"], other["mu"], rtol=1e-12)
    assert parts.samples_at_once(3) == at_once and whole.samples_at_once(3) is None


def test_everything_at_once_trains_on_a_mesh_and_in_a_batch_of_seeds(x64):
    """Context, copies, a trained start and antithetic pairs; a mesh and a batch give the numbers of one run."""
    loss = geometric(
        y0=lambda params, row: params["start"] * jnp.asarray(DATA)[row][None],
        terminal=lambda y, params, row: (y[0, 0] - jnp.asarray(DATA)[row]) * (y[1, 0] - jnp.asarray(DATA)[row]),
        context=lambda key: jax.random.randint(key, (), 0, len(DATA)),
        copies=2,
        antithetic=True,
        observation_times=None,
    )
    plan = dmlmc.plan(RATES, 2, level0_samples=4)
    settings = {"steps": 5, "progress": False}
    keys = jax.random.split(jax.random.key(0), 2)
    alone = [
        dmlmc.train(dmlmc.delayed_mlmc(loss, plan), optax.sgd(0.01), params_of(), key=key, **settings)[0]
        for key in keys
    ]
    batch, _ = dmlmc.train(dmlmc.delayed_mlmc(loss, plan), optax.sgd(0.01), params_of(), key=keys, **settings)
    meshed = dmlmc.delayed_mlmc(loss, plan, mesh=dmlmc.mesh(samples=1))
    shared, _ = dmlmc.train(meshed, optax.sgd(0.01), params_of(), key=keys[0], **settings)
    for name in ("mu", "start"):
        np.testing.assert_allclose(batch[name], [float(one[name]) for one in alone], rtol=1e-10)
        assert shared[name] == pytest.approx(float(alone[0][name]), rel=1e-10)
    assert alone[0]["start"] != 1.5


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"y0": lambda: 1}, TypeError, r"y0 must be a function of \(params\)"),
        ({"context": 3}, TypeError, r"context must be a function of \(key\), got 3"),
        ({"context": lambda: 3}, TypeError, r"context must be a function of \(key\)"),
        ({"copies": 0}, ValueError, "copies must be at least 1, got 0"),
        ({"copies": 1.5}, TypeError, "copies must be an integer"),
        ({"antithetic": 1}, TypeError, "antithetic must be True or False, got 1"),
        ({"antithetic": True, "solver": diffrax.Heun()}, ValueError, "antithetic needs a solver for Ito .* got Heun"),
        ({"samples_at_once": 0}, ValueError, "samples_at_once must be at least 1, got 0"),
        ({"observation_times": [0.3, 1.0]}, ValueError, r"got \[0.3, 1.0\]; coarsest_steps=10 would do"),
        ({"observation_times": [1 / 3]}, ValueError, "; coarsest_steps=6 would do"),
        ({"observation_times": [0.5, 1.5]}, ValueError, r"got \[0.5, 1.5\]\.$"),
    ],
)
def test_bad_options_are_named(own_errors, options, error, message):
    with pytest.raises(error, match=f"^SDELoss: .*{message}"):
        geometric(**options)


def test_functions_without_the_context_argument_are_refused():
    for name in ("drift", "diffusion", "terminal", "y0"):
        wrong = {"terminal": lambda y, params: 0.0, "y0": lambda params: jnp.ones(1)}.get(name, lambda t, y, params: y)
        with pytest.raises(TypeError, match=rf"SDELoss: {name} must be a function of \(.*params, context\)"):
            geometric(context=lambda key: 0.0, **{name: wrong})


def test_a_start_of_the_wrong_kind_and_noise_without_context_are_named(own_errors):
    loss = geometric(y0=lambda params: params["start"])
    with pytest.raises(ValueError, match=r"SDELoss: y0 must return a vector of floats, got shape \(\)"):
        loss.loss(params_of(), loss.sample(jax.random.key(0), 0))
    with pytest.raises(TypeError, match="noise must be a pair of increments and context"):
        with_data().loss(params_of(), jnp.zeros((4, 1)))
    copies = geometric(copies=3)
    with pytest.raises(ValueError, match=r"shape \(coarsest_steps \* 2\*\*level, copies, noise_dim\) = \(4 .*, 3, 1\)"):
        copies.loss(params_of(), jnp.zeros((4, 1)))


OPTIONS = {
    "plain": {},
    "observed": {
        "observation_times": (0.5, 1.0),
        "terminal": lambda y, params, *rest: jnp.sum(jnp.sin(y) * params["mu"]),
    },
    "antithetic": {"antithetic": True},
    "copies": {"copies": 2, "terminal": lambda y, params, *rest: (y[0, 0] - 1.0) * (y[1, 0] - 1.0)},
    "a solver with state": {"solver": diffrax.ReversibleHeun()},
    "all": {
        "observation_times": (0.25, 1.0),
        "antithetic": True,
        "copies": 3,
        "context": lambda key: jax.random.normal(key),
        "drift": lambda t, y, params, shift: params["mu"] * y * (1 + t) + shift,
        "y0": lambda params, shift: params["start"][None] + shift,
        "terminal": lambda y, params, shift: jnp.prod(y[:, 0, 0]) + shift * jnp.sum(y[:, 1]),
    },
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("samples", [2, 5])
def test_a_batch_of_pairs_is_each_pair_by_itself(x64, options, samples):
    """In a batch, half of the coarse paths step at a time. Losses and gradients, also of an odd number of paths."""
    loss, params = geometric(**options), params_of()
    noises = loss.batch(jax.random.split(jax.random.key(1), samples), 2)
    weights = jnp.linspace(0.5, 2.0, 2 * samples)  # another one for every loss, so that none can be mistaken

    def total(pairs):
        return lambda params: (jnp.concatenate(pairs(params)) @ weights, jnp.stack(pairs(params)))

    def alone(params):
        each = [loss.pairs(params, jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], noises)) for i in range(samples)]
        return [jnp.concatenate(losses) for losses in zip(*each, strict=True)]

    def mapped(params):
        return jax.vmap(lambda noise: loss.pair(params, noise))(noises)

    found = [
        jax.jit(jax.grad(total(pairs), has_aux=True))(params)
        for pairs in (alone, mapped, lambda params: loss.pairs(params, noises))
    ]
    for one, *others in zip(*map(jax.tree.leaves, found), strict=True):
        for other in others:
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)


PARAMS, NO_CONTEXT = np.array([0.5, -0.25]), np.array([0.5, -1.0])
LOOPED = {
    "plain": {},
    "context": {"context": True},
    "copies": {"copies": 2},
    "observed": {"observation_times": (0.5, 1.5)},
    "antithetic": {"antithetic": True},
    "all": {"context": True, "copies": 3, "observation_times": (0.5, 1.5), "antithetic": True},
}


def euler_loss(context=False, **options):
    """Two components and three noises, by Euler's scheme on three steps at level 0."""

    def terminal(y, params, context=NO_CONTEXT):
        return jnp.sum(y * jnp.arange(1.0, 1.0 + y.size).reshape(y.shape)) * params[0] * y.ndim + context[0]

    def drift(t, y, params, context=NO_CONTEXT):
        return params * y + t - context

    def diffusion(t, y, params, context=NO_CONTEXT):
        return y[:, None] * jnp.array([0.5, 1.0, -2.0]) + t * context[:, None]

    def start(params, context=NO_CONTEXT):
        return params + context

    return dmlmc.SDELoss(
        drift=drift, diffusion=diffusion, terminal=terminal, y0=start, t1=1.5, coarsest_steps=3, noise_dim=3,
        solver=diffrax.Euler(), context=(lambda key: jax.random.normal(key, (2,))) if context else None, **options,
    )  # fmt: skip


def looped(loss, noise, context):
    """What the terminal loss sees of one sample, and the loss, by a loop over the copies and the steps in NumPy."""
    seen, steps = [], len(noise)
    for copy in noise.reshape(steps, -1, 3).swapaxes(0, 1):
        y, states = PARAMS + context, []
        for t, increment in zip(np.arange(steps) * 1.5 / steps, copy, strict=True):
            volatility = y[:, None] * np.array([0.5, 1.0, -2.0]) + t * context[:, None]
            y = y + (PARAMS * y + t - context) * 1.5 / steps + volatility @ increment
            states.append(y)
        seen.append(y if loss.observed_steps is None else np.array([states[steps // 3 - 1], y]))
    found = np.array(seen if loss.copies > 1 else seen[0])
    weights = np.arange(1.0, 1.0 + found.size).reshape(found.shape)
    return found, np.sum(found * weights) * PARAMS[0] * found.ndim + context[0]


@pytest.mark.parametrize("options", LOOPED.values(), ids=LOOPED)
@pytest.mark.parametrize("samples", [1, 2])
def test_losses_and_pairs_are_those_of_a_loop(x64, options, samples):
    loss, params = euler_loss(**options), jnp.asarray(PARAMS)
    noises = loss.batch(jax.random.split(jax.random.key(1), samples), 1)
    increments, contexts = map(np.asarray, noises if "context" in options else (noises, [NO_CONTEXT] * samples))
    fine, coarse = [], []
    for one, context in zip(increments, contexts, strict=True):
        swapped = one.reshape(3, 2, -1)[:, ::-1].reshape(one.shape)
        both = [looped(loss, noise, context)[1] for noise in (one, swapped if "antithetic" in options else one)]
        fine.append(np.mean(both))
        coarse.append(looped(loss, one[0::2] + one[1::2], context)[1])
    np.testing.assert_allclose(loss.pairs(params, noises), [fine, coarse], rtol=1e-11)
    noise = jax.tree.map(lambda leaf: leaf[0], noises)
    if samples == 1:
        np.testing.assert_allclose(loss.pair(params, noise), [fine[0], coarse[0]], rtol=1e-11)
    else:
        states, value = looped(loss, increments[0], contexts[0])
        np.testing.assert_allclose(loss.states(params, noise), states, rtol=1e-11)
        np.testing.assert_allclose(loss.loss(params, noise), value, rtol=1e-11)
        np.testing.assert_allclose(loss.loss(params, loss.coarsen(noise)), coarse[0], rtol=1e-11)


def test_the_smallest_sizes_are_accepted():
    loss = geometric(coarsest_steps=1, samples_at_once=1)
    assert loss.sample(jax.random.key(0), 0).shape == (1, 1) and loss.samples_at_once(0) == 1
    assert geometric(copies=2).sample(jax.random.key(0), 1).shape == (8, 2, 1)
    assert geometric().samples_at_once(0) is None
    assert loss.fine_paths == 1 and geometric(antithetic=True).fine_paths == 2


def test_milstein_is_the_default_and_has_cheaper_gradients_than_that_of_diffrax():
    class Other(diffrax.ItoMilstein):
        pass

    assert type(geometric().solver) is type(geometric(solver=diffrax.ItoMilstein()).solver) is Milstein
    for solver in (diffrax.Euler(), Other()):
        assert geometric(solver=solver).solver is solver


def test_a_bad_key_a_bad_level_and_pairs_of_level_0_are_named(own_errors):
    loss, noises = geometric(), jnp.zeros((2, 4, 1))
    with pytest.raises(ValueError, match=r"^SDELoss: level must be at least 0, got -1"):
        loss.sample(jax.random.key(0), -1)
    with pytest.raises(TypeError, match=r"^SDELoss: key must be a key"):
        loss.sample(3, 0)
    for pairs, noise in ((loss.pairs, noises), (loss.pairs, noises[:1]), (loss.pair, noises[0])):
        with pytest.raises(ValueError, match=r"^SDELoss: noise must have shape .* with level >= 1, got \(4, 1\)"):
            pairs(params_of(), noise)


def test_times_and_what_functions_return_are_cast_to_the_dtype_of_the_state(x64):
    seen = []

    def drift(t, y, params):
        seen.append((t.dtype, y.dtype))
        return np.ones(1)

    options = {"drift": drift, "diffusion": lambda t, y, params: np.ones((1, 1), int), "solver": diffrax.Euler()}
    noise = jnp.ones((8, 1), jnp.float32)
    for y0 in (jnp.zeros(1, jnp.float32), lambda params: jnp.zeros(1)):
        loss = geometric(y0=y0, **options)
        for found in (loss.loss, loss.pair, lambda params, noise, loss=loss: loss.pairs(params, noise[None])):
            assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(jax.eval_shape(found, None, noise)))
    assert set(seen) == {(jnp.dtype("float32"),) * 2}
    assert geometric(y0=jnp.zeros(1, jnp.float32)).sample(jax.random.key(0), 0).dtype == jnp.float32
    assert geometric().sample(jax.random.key(0), 0).dtype == jnp.float64
