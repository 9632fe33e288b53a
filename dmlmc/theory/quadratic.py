"""SGD on a quadratic loss without sampling: exact second moments, and the exact limit of stability. No JAX.

On a quadratic loss SGD is linear, also with heavy-ball momentum. Its state is x, the last gradient of every level and
the velocity. Products of small matrices give the mean squares and the growth of a deviation. All coordinates follow
the same recursion independently, so sums of squares over them obey it too, in any dimension.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.linalg import solve_discrete_lyapunov

from dmlmc._internal.checks import integer, positive, positive_integers, positive_reals, real
from dmlmc.schedule import MLMC, NAIVE, Plan
from dmlmc.theory.theorem import Problem, check_method


@dataclass(frozen=True)
class LinearModel:
    """Gradients ``curvatures[l] x + noise`` of variance ``variances[l]``, refreshed every ``periods[l]`` steps.

    Curvatures may have any sign: Assumption 3 bounds only their size.

    >>> LinearModel(curvatures=(1.0, 0.5), variances=(0.1, 0.02), periods=(1, 2)).curvature
    1.5
    """

    curvatures: tuple[float, ...]
    variances: tuple[float, ...]
    periods: tuple[int, ...]

    def __post_init__(self):
        curvatures = tuple(real(f"LinearModel: curvatures[{l}]", value) for l, value in enumerate(self.curvatures))
        variances = positive_reals("LinearModel: variances", self.variances, length=len(curvatures))
        object.__setattr__(self, "curvatures", curvatures)
        object.__setattr__(self, "variances", tuple(float(value) for value in variances))
        periods = positive_integers("LinearModel: periods", self.periods, length=len(curvatures))
        object.__setattr__(self, "periods", periods)

    @property
    def curvature(self) -> float:
        """The curvature of the mean loss at the finest level: the sum over levels."""
        return sum(self.curvatures)

    def refresh(self, step: int) -> Float[np.ndarray, "state state"]:
        """The matrix that applies the refreshes of a step to the state (x, last gradients, velocity)."""
        matrix = np.eye(len(self.periods) + 2)
        for level, (curvature, period) in enumerate(zip(self.curvatures, self.periods, strict=True), start=1):
            if step % period == 0:
                matrix[level] = 0.0
                matrix[level, 0] = curvature
        return matrix

    def noise(self, step: int) -> Float[np.ndarray, " state"]:
        """The variances that the refreshes of a step add to the state."""
        due = [v if step % p == 0 else 0.0 for v, p in zip(self.variances, self.periods, strict=True)]
        return np.array([0.0, *due, 0.0])


def delayed_model(problem: Problem, plan: Plan) -> LinearModel:
    """``dmlmc.QuadraticLoss`` with the constants of a problem, under a plan. For MLMC use ``plan.without_delay()``."""
    levels = range(problem.max_level + 1)
    variances = [problem.M * 2.0 ** (-problem.rates.b * l) / n for l, n in zip(levels, plan.samples, strict=True)]
    return LinearModel(quadratic_curvatures(problem), tuple(variances), plan.periods)


def naive_model(problem: Problem, samples: int) -> LinearModel:
    """The same loss with ``samples`` paths at the finest level. The noises of its levels are independent and add up."""
    samples = integer("naive_model: samples", samples, minimum=1)
    variance = problem.M * sum(2.0 ** (-problem.rates.b * level) for level in range(problem.max_level + 1)) / samples
    return LinearModel((sum(quadratic_curvatures(problem)),), (variance,), (1,))


def linear_model(problem: Problem, method: str, samples: float) -> LinearModel:
    """The same loss under a method at the effective batch size N = ``samples``."""
    if check_method("linear_model", method) == NAIVE:
        return naive_model(problem, int(samples))
    plan = problem.plan(samples)
    return delayed_model(problem, plan.without_delay() if method == MLMC else plan)


def quadratic_curvatures(problem: Problem) -> tuple[float, ...]:
    """``2^(-d l) L`` for each level."""
    return tuple(problem.L * 2.0 ** (-problem.rates.d * level) for level in range(problem.max_level + 1))


def exact_moments(
    model: LinearModel, gap: float, step_size: ArrayLike, steps: int
) -> tuple[Float[np.ndarray, "*sizes {steps}"], Float[np.ndarray, "*sizes {steps}"]]:
    """``E|grad F(x_t)|^2`` and ``E|grad F(x_t) - g_t|^2`` for t = 0, ..., ``steps - 1``, from F(x_0) - inf F = ``gap``.

    >>> gradient, error = exact_moments(LinearModel((1.0,), (0.5,), (1,)), gap=2.0, step_size=0.5, steps=3)
    >>> gradient.tolist(), error.tolist()  # |x|^2 goes to |x|^2 / 4 + 0.5 / 4
    ([4.0, 1.125, 0.40625], [0.5, 0.5, 0.5])
    """
    if model.curvature <= 0:
        raise ValueError(f"exact_moments: the model must have positive total curvature, got {model.curvature}.")
    steps, sizes = integer("exact_moments: steps", steps, minimum=0), np.asarray(step_size, dtype=float)
    update, size = _updates(model, sizes), len(model.periods) + 2
    moments = np.zeros((*sizes.shape, size, size))
    moments[..., 0, 0] = 2 * positive("exact_moments: gap", gap) / model.curvature
    error_row = np.array([model.curvature] + [-1.0] * (size - 2) + [0.0])
    gradient, error = np.empty((*sizes.shape, steps)), np.empty((*sizes.shape, steps))
    for step in range(steps):
        gradient[..., step] = model.curvature**2 * moments[..., 0, 0]
        refresh = model.refresh(step)
        moments = refresh @ moments @ refresh.T + np.diag(model.noise(step))
        error[..., step] = error_row @ moments @ error_row
        moments = update @ moments @ np.swapaxes(update, -1, -2)
    return gradient, error


def cycle_maps(
    model: LinearModel, step_size: float
) -> Iterator[tuple[Float[np.ndarray, "state state"], Float[np.ndarray, "state state"]]]:
    """For each step of a cycle of the periods: the matrix A and the covariance B of ``moments -> A moments A' + B``."""
    update = _updates(model, np.asarray(step_size, dtype=float))
    for step in range(math.lcm(*model.periods)):
        yield update @ model.refresh(step), update @ np.diag(model.noise(step)) @ update.T


def growth_factor(
    model: LinearModel, step_size: ArrayLike, momentum: float = 0.0
) -> Float[np.ndarray, " *sizes"] | np.float64:
    """The factor by which a deviation grows per step in the long run: the spectral radius over a cycle of periods.

    Below 1 the run is stable, above 1 it diverges, for any noise. ``momentum`` is that of
    ``optax.sgd(step_size, momentum)``: the velocity v becomes ``momentum v + gradient``.

    >>> float(growth_factor(LinearModel((1.0,), (1.0,), (1,)), 2.5))
    1.5
    """
    cycle, sizes = math.lcm(*model.periods), np.asarray(step_size, dtype=float)
    if cycle > 100_000:
        raise ValueError(f"growth_factor: periods must repeat within 100000 steps, got {model.periods}: {cycle} steps.")
    update = _updates(model, sizes, real("growth_factor: momentum", momentum))
    product, log_scale = np.broadcast_to(np.eye(len(model.periods) + 2), update.shape), np.zeros(sizes.shape)
    for step in range(cycle):
        product = update @ (model.refresh(step) @ product)
        largest = np.max(np.abs(product), axis=(-1, -2))  # rescaled, because a long unstable cycle would overflow
        product, log_scale = product / largest[..., None, None], log_scale + np.log(largest)
    radius = np.max(np.abs(np.linalg.eigvals(product)), axis=-1)
    with np.errstate(divide="ignore"):
        return np.exp((np.log(radius) + log_scale) / cycle)


def stability_limit(model: LinearModel, momentum: float = 0.0, *, points: int = 400) -> float:
    """The exact step size at which a run on a quadratic loss becomes unstable, found by a scan and bisection.

    The theorems admit less: ``theorem.theorem_step_size`` and ``staleness.safe_step_size``. Some larger step sizes can
    be stable again; this is the end of the first stable interval, or 0.0 if there is none.

    >>> round(stability_limit(LinearModel((1.0,), (1.0,), (1,))), 6)
    2.0
    """
    scale = sum(abs(curvature) for curvature in model.curvatures)
    lowest = 1e-3 * (1 - momentum) / sum(abs(k) * p for k, p in zip(model.curvatures, model.periods, strict=True))
    sizes = np.geomspace(lowest, 8 / scale, points) if lowest < 8 / scale else np.array([lowest])
    return end_of_stability(lambda step_size: growth_factor(model, step_size, momentum), sizes)


def end_of_stability(growth: Callable[[Any], Any], sizes: Float[np.ndarray, " sizes"]) -> float:
    """The end of the first interval of step sizes whose growth is below 1: a scan of ``sizes``, then bisection.

    >>> round(end_of_stability(lambda a: abs(1 - a), np.array([0.5, 1.5, 2.5])), 6)
    2.0
    """
    unstable = np.flatnonzero(growth(sizes) >= 1.0)
    if unstable.size == 0:
        return float(sizes[-1])
    if unstable[0] == 0:
        return 0.0
    low, high = sizes[unstable[0] - 1], sizes[unstable[0]]
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if growth(middle) < 1.0 else (low, middle)
    return float(low)


def stationary_squares(
    maps: Sequence[tuple[Float[np.ndarray, "state state"], Float[np.ndarray, "state state"]]],
) -> Float[np.ndarray, " cycle"]:
    """The mean square of the first entry of the state at each step of a cycle, in the long run of a stable cycle.

    A map is (A, B) of ``moments -> A moments A' + B``. The covariance at the start of a cycle is a fixed point of the
    map over a whole cycle, a Lyapunov equation.

    >>> stationary_squares([(np.array([[0.5]]), np.array([[0.75]]))])
    array([1.])
    """
    propagator, noise = np.eye(len(maps[0][0])), np.zeros_like(maps[0][1])
    for matrix, added in maps:
        propagator, noise = matrix @ propagator, matrix @ noise @ matrix.T + added
    moments, squares = solve_discrete_lyapunov(propagator, noise), []
    for matrix, added in maps:
        squares.append(moments[0, 0])
        moments = matrix @ moments @ matrix.T + added
    return np.array(squares)


def _updates(
    model: LinearModel, sizes: Float[np.ndarray, " *sizes"], momentum: float = 0.0
) -> Float[np.ndarray, "*sizes state state"]:
    """The matrix of ``velocity = momentum * velocity + sum of the last gradients``, ``x -= step size * velocity``."""
    size = len(model.periods) + 2
    updates = np.broadcast_to(np.eye(size), (*sizes.shape, size, size)).copy()
    updates[..., -1, :] = [0.0] + [1.0] * (size - 2) + [momentum]
    updates[..., 0, 1:] = -sizes[..., None] * updates[..., -1, 1:]
    return updates
