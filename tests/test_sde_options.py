"""Options of SDELoss: a trained start, context, copies, the antithetic coupling, samples at once."""

import warnings

import diffrax
import equinox as eqx
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
    loss = geometric()
    noise = loss.sample(jax.random.key(0), 2)
    for function in (lambda params: loss.loss(params, noise), lambda params: loss.difference(params, noise, 2)):
        value_and_slope = jax.jit(jax.value_and_grad(function))
        _, gradient = value_and_slope(params_of())
        (above, _), (below, _) = (value_and_slope(params_of(start=1.5 + shift)) for shift in (1e-5, -1e-5))
        assert gradient["start"] == pytest.approx((float(above) - float(below)) / 2e-5, rel=1e-7)

    @jax.jit
    def slopes_of(keys):
        return jax.vmap(lambda key: jax.grad(loss.loss)(params_of(), loss.sample(key, 6))["start"])(keys)

    slopes = np.asarray(slopes_of(jax.random.split(jax.random.key(1), 4000)))
    assert abs(slopes.mean() - np.exp(0.2)) < 4 * slopes.std() / 4000**0.5 + 1e-3  # the scheme's bias is below 1e-3


def test_a_fixed_start_and_a_function_that_returns_it_are_one_loss(x64):
    fixed, function = geometric(y0=jnp.array([1.5])), geometric()
    noise = fixed.sample(jax.random.key(0), 2)
    np.testing.assert_array_equal(noise, function.sample(jax.random.key(0), 2))
    loss_and_pair = eqx.filter_jit(lambda loss: (loss.loss(params_of(), noise), *loss.pair(params_of(), noise)))
    assert loss_and_pair(fixed) == loss_and_pair(function)


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

    @jax.jit
    def losses(key):
        noise = loss.sample(key, 2)
        increments, row = noise
        plain = geometric(
            y0=lambda params: params["start"] * jnp.asarray(DATA)[row][None],
            drift=lambda t, y, params: params["mu"] * y,
            diffusion=lambda t, y, params: 0.3 * y[:, None],
            terminal=lambda y, params: (y[0] - jnp.asarray(DATA)[row]) ** 2,
        )
        of_plain = plain.loss(params, increments), plain.loss(params, plain.coarsen(increments))
        return loss.pair(params, noise), loss.loss(params, loss.coarsen(noise)), of_plain

    for seed in range(8):
        (fine, coarse), coarse_alone, (plain_fine, plain_coarse) = losses(jax.random.key(seed))
        assert fine == pytest.approx(float(plain_fine), rel=1e-12)
        assert coarse == pytest.approx(float(coarse_alone), rel=1e-12)
        assert coarse == pytest.approx(float(plain_coarse), rel=1e-12)


def test_the_mean_over_contexts_is_that_of_a_loop_over_the_data(x64):
    loss, params, count = with_data(), params_of(), 20_000
    noises = loss.batch(jax.random.split(jax.random.key(0), count), 1)
    increments, contexts = noises
    losses = eqx.filter_jit(loss.losses)
    found = np.asarray(losses(params, noises))
    by_row = [losses(params, (increments, np.full_like(contexts, row))).mean() for row in range(len(DATA))]
    assert abs(found.mean() - np.mean(by_row)) < 4 * found.std() / count**0.5
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
    assert noise.shape == (16, 2, 1) and jax.eval_shape(copies.states, params, noise).shape == (2, 2, 1)
    np.testing.assert_array_equal(np.reshape(noise, (16, 2)), flat)

    def values_and_slope(loss, noise):
        def difference(params):
            fine, coarse = loss.pair(params, noise)
            return fine - coarse, (fine, coarse)

        slope, pair = jax.grad(difference, has_aux=True)(params)
        return (loss.loss(params, noise), *pair), slope["mu"]

    ours, our_slope = jax.jit(lambda: values_and_slope(copies, noise))()
    theirs, their_slope = jax.jit(lambda: values_and_slope(together, flat))()
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert our_slope == pytest.approx(float(their_slope))


def test_two_copies_make_the_square_of_a_mean_unbiased(x64):
    """(E S - 2)^2 with E S = 1.5 e^mu; the square of one path would have its variance on top."""
    loss = geometric(copies=2, terminal=lambda y, params: (y[0, 0] - 2) * (y[1, 0] - 2))
    keys = jax.random.split(jax.random.key(0), 40_000)
    values = np.asarray(jax.jit(lambda keys: loss.losses(params_of(), loss.batch(keys, 3)))(keys))
    exact = (1.5 * np.exp(0.2) - 2) ** 2
    error = values.std() / len(values) ** 0.5
    assert abs(values.mean() - exact) < 4 * error + 1e-3 and error < 0.01
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
    swapped = np.reshape(noise, (8, 2, 2))[:, ::-1].reshape(16, 2)
    loss_of_plain = eqx.filter_jit(plain.loss)
    fine, coarse = eqx.filter_jit(antithetic.pair)(params, noise)
    plain_fine, plain_coarse = eqx.filter_jit(plain.pair)(params, noise)
    by_hand = (float(loss_of_plain(params, noise)) + float(loss_of_plain(params, swapped))) / 2
    assert fine == pytest.approx(by_hand, rel=1e-12)
    assert coarse == pytest.approx(float(plain_coarse), rel=1e-12)
    assert fine != plain_fine
    assert eqx.filter_jit(antithetic.loss)(params, noise) == loss_of_plain(params, noise)  # level 0 is one plain path


def test_the_antithetic_coupling_has_the_mean_of_the_plain_one(x64):
    params, keys = {"scale": jnp.array(0.3)}, jax.random.split(jax.random.key(3), 20_000)
    losses = stochastic_volatility(), stochastic_volatility(antithetic=True)
    noises = losses[0].batch(keys, 1)
    values = [np.asarray(eqx.filter_jit(loss.differences)(params, noises, 1)) for loss in losses]
    gap = values[1] - values[0]
    assert abs(gap.mean()) < 4 * gap.std() / len(gap) ** 0.5
    assert np.var(values[1]) < np.var(values[0]) / 2


def clark_cameron(antithetic):
    """dX = dW1, dY = scale X dW2: without Levy areas no scheme has a strong order above 1/2.

    Whether the loss has a kink is one of the parameters, so that both losses are one compiled program.
    """
    return stochastic_volatility(
        drift=lambda t, y, params: jnp.zeros_like(y),
        diffusion=lambda t, y, params: jnp.diag(jnp.stack([jnp.ones_like(y[0]), params["scale"] * y[0]])),
        terminal=lambda y, params: jnp.where(params["kink"], jnp.maximum(y[1] - 1.0, 0.0), jnp.exp(-(y[1] ** 2))),
        antithetic=antithetic,
    )


@pytest.fixture(scope="module")
def calibrated():
    """The check lists of three losses of noise that does not commute."""
    plain, antithetic = clark_cameron(False), clark_cameron(True)

    def report(loss, kink):
        params = {"scale": jnp.array(1.0), "kink": jnp.array(kink)}
        return dmlmc.calibrate(loss, params, jax.random.key(0), 60_000, max_level=4, steps=[4, 8, 16, 32, 64])[1]

    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Rates. b")  # the plain coupling has b near c
        return {"plain": report(plain, False), "antithetic": report(antithetic, False), "kinked": report(plain, True)}


def test_the_antithetic_coupling_gives_b_back_where_noise_does_not_commute(calibrated):
    plain, antithetic = (calibrated[name].fitted.b for name in ("plain", "antithetic"))
    assert plain.estimate < 1.4 and antithetic.estimate > 1.8, (plain, antithetic)
    assert plain.high < antithetic.low


def test_calibrate_warns_of_a_kink_that_depends_on_the_dynamics(calibrated):
    """The gradient of a call in a parameter of the dynamics has an indicator: b near 0.5, as noise does not commute."""
    kinked, smooth = calibrated["kinked"], calibrated["antithetic"]
    assert 0.2 < kinked.fitted.b.estimate < 0.8
    assert any("b = 0." in warning and "kink" in warning for warning in kinked.warnings())
    assert not any("kink" in warning for warning in smooth.warnings())


def test_commutative_noise_loses_nothing_by_the_antithetic_coupling(x64):
    params, keys = params_of(), jax.random.split(jax.random.key(0), 4000)
    losses = geometric(), geometric(antithetic=True)
    noises = losses[0].batch(keys, 3)
    variances = [np.var(eqx.filter_jit(loss.differences)(params, noises, 3)) for loss in losses]
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


def test_samples_at_once_changes_memory_only(x64):
    def slope(loss):
        plan = dmlmc.plan(RATES, 1, samples=[7, 4], periods=[1, 1])
        return dmlmc.mlmc(loss, plan).estimate(params_of(), (), 0, jax.random.key(0))[0]["mu"]

    whole = geometric()
    expected = slope(whole)
    assert whole.samples_at_once(3) is None
    for at_once in (1, 3, 64):
        parts = geometric(samples_at_once=at_once)
        np.testing.assert_allclose(slope(parts), expected, rtol=1e-12)
        assert parts.samples_at_once(3) == at_once


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
    plan = dmlmc.plan(RATES, 1, level0_samples=4)
    estimator, meshed = dmlmc.delayed_mlmc(loss, plan), dmlmc.delayed_mlmc(loss, plan, mesh=dmlmc.mesh(samples=1))

    def trained(estimator, key):
        return dmlmc.train(estimator, optax.sgd(0.01), params_of(), steps=5, key=key, progress=False)[0]

    keys = jax.random.split(jax.random.key(0), 2)
    alone = [trained(estimator, key) for key in keys]
    batch, shared = trained(estimator, keys), trained(meshed, keys[0])
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
def test_a_batch_of_pairs_is_each_pair_by_itself(x64, options):
    """In a batch, half of the coarse paths step at a time. Losses and gradients, also of an odd number of paths."""
    loss, count = geometric(**options), 5
    noises = jax.tree.map(np.asarray, loss.batch(jax.random.split(jax.random.key(1), count), 2))
    weights = np.linspace(0.5, 2.0, 2 * count).reshape(2, count)  # another one for every loss: none can be mistaken

    def first(noises, start, stop):
        return jax.tree.map(lambda leaf: leaf[start:stop], noises)

    def gradient_of(pairs):
        """Of the weighted sum of the fine and coarse losses, with the losses themselves."""

        def total(params, noises, weights):
            losses = jnp.stack(pairs(params, noises))
            return jnp.sum(weights * losses), losses

        return jax.jit(jax.grad(total, has_aux=True))

    def mapped(params, noises):
        return jax.vmap(lambda noise: loss.pair(params, noise))(noises)

    batched = gradient_of(loss.pairs)
    alone = [batched(params_of(), first(noises, i, i + 1), weights[:, i : i + 1]) for i in range(count)]
    for pairs, samples in ((batched, 2), (batched, 5), (gradient_of(mapped), 5)):
        gradient, losses = pairs(params_of(), first(noises, 0, samples), weights[:, :samples])
        expected = [losses for _, losses in alone[:samples]]
        np.testing.assert_allclose(losses, np.concatenate(expected, axis=1), rtol=1e-11, atol=1e-12)
        for name, found in gradient.items():
            by_itself = np.sum([one[name] for one, _ in alone[:samples]])
            np.testing.assert_allclose(found, by_itself, rtol=1e-11, atol=1e-12)


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
def test_losses_and_pairs_are_those_of_a_loop(x64, options):
    loss = euler_loss(**options)

    @jax.jit
    def values(params, noises):
        first, noise = (jax.tree.map(lambda leaf, rows=rows: leaf[rows], noises) for rows in (slice(1), 0))
        return {
            "pairs": loss.pairs(params, noises),
            "pairs of one sample": loss.pairs(params, first),
            "pair": loss.pair(params, noise),
            "states": loss.states(params, noise),
            "losses": (loss.loss(params, noise), loss.loss(params, loss.coarsen(noise))),
        }

    noises = loss.batch(jax.random.split(jax.random.key(1), 2), 1)
    increments, contexts = map(np.asarray, noises if "context" in options else (noises, [NO_CONTEXT] * 2))
    fine, coarse = [], []
    for one, context in zip(increments, contexts, strict=True):
        swapped = one.reshape(3, 2, -1)[:, ::-1].reshape(one.shape)
        both = [looped(loss, noise, context)[1] for noise in (one, swapped if "antithetic" in options else one)]
        fine.append(np.mean(both))
        coarse.append(looped(loss, one[0::2] + one[1::2], context)[1])
    states, value = looped(loss, increments[0], contexts[0])
    expected = {
        "pairs": (fine, coarse),
        "pairs of one sample": (fine[:1], coarse[:1]),
        "pair": (fine[0], coarse[0]),
        "states": states,
        "losses": (value, coarse[0]),
    }
    for name, found in values(PARAMS, noises).items():
        np.testing.assert_allclose(found, expected[name], rtol=1e-11, err_msg=name)


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
