import numpy as np
import pytest

from dmlmc.experiments import stability
from dmlmc.theory.quadratic import LinearModel, growth_factor


def test_without_delay_momentum_raises_the_limit_as_in_the_textbook():
    limits = stability.stability_limits(0.0, [1], [0.0, 0.5, 0.9])
    np.testing.assert_allclose(limits.limit, 2 * (1 + limits.momentum), rtol=1e-4)


@pytest.mark.parametrize("m", [0.0, 0.5, 0.9])
def test_a_gradient_that_stays_long_acts_with_the_step_over_one_less_momentum(m):
    # Over a period p >> 1 / (1 - m) a fresh gradient moves x by p a / (1 - m) times itself, and 2 is too much.
    limits = stability.stability_limits(0.0, [1024], [m])
    assert limits.limit[0] == pytest.approx(2 * (1 - m) / 1024, rel=0.05)


def test_momentum_zero_is_plain_sgd():
    model = LinearModel((1.0, -0.3), (1.0, 1.0), (1, 3))
    cycle = np.eye(3)
    for step in range(3):  # x, fresh gradient, stale gradient, by hand
        fresh, stale = [1.0, 0.0, 0.0], [-0.3, 0.0, 0.0] if step == 0 else [0.0, 0.0, 1.0]
        update = np.array([[1.0, -0.4, -0.4], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
        cycle = update @ np.array([[1.0, 0.0, 0.0], fresh, stale]) @ cycle
    exact = np.max(np.abs(np.linalg.eigvals(cycle))) ** (1 / 3)
    assert float(growth_factor(model, 0.4)) == pytest.approx(exact)


def test_runs_with_optax_diverge_where_the_exact_growth_says_so():
    limits = stability.stability_limits(2.0, [4], [0.0, 0.5, 0.9])
    runs = stability.runs_near_limits(2.0, limits)
    assert runs.unstable.tolist() == (runs.growth > 1).tolist()
    assert runs.unstable.any() and not runs.unstable.all()
    # Plain SGD stands the stale level as if it were not there; with momentum it does not.
    assert limits.limit[0] == pytest.approx(2 / 2.0, rel=1e-3) and stability.worst_drop(limits) > 5
