"""Errata of the paper's method and experiment: computations that return numbers, and whether they confirm the row.

A computation here can come out otherwise: if the formula were right as printed, ``confirmed`` would be False. If no
setting is given, it is the paper's: b = 1.8, c = d = 1, l_max = 6, with L = M = F(x_0) - inf F = 1.
"""

import math

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from dmlmc.allocation import plan
from dmlmc.experiments.black_scholes import Market, black_scholes_price, expected_payoff
from dmlmc.experiments.errata_theory import RATES, Numbers, setting
from dmlmc.schedule import MLMC, PAPER, level_cost
from dmlmc.theory.complexity import fitted_exponent, work_per_step


def work_of_mlmc(samples: int = 64) -> Numbers:
    """The work of a step of MLMC for a small batch and more and more levels. O(N) would not grow."""
    work = [work_per_step(setting(level), MLMC, samples) for level in (6, 10, 14)]
    return {
        "six": work[0],
        "ten": work[1],
        "fourteen": work[2],
        "confirmed": work[2] > 2 ** (4 * RATES.c) / 2 * work[1],
    }


def last_refresh(steps: int = 128) -> Numbers:
    """For every level and step: multiples of the period that satisfy the printed condition, and the strict one."""
    delayed = setting().plan(1.0)
    pairs = [(level, period, t) for level, period in enumerate(delayed.periods) for t in range(steps)]
    printed = [[s for s in range(t + 1) if t - p <= s and s % p == 0] for _, p, t in pairs]
    strict = [[s for s in range(t + 1) if t - p < s and s % p == 0] for _, p, t in pairs]
    unique = sum(found == [delayed.last_refresh(level, t)] for (level, _, t), found in zip(pairs, strict, strict=True))
    ambiguous = sum(len(found) > 1 for found in printed)
    confirmed = ambiguous > 0 and unique == len(pairs)
    return {"pairs": len(pairs), "ambiguous": ambiguous, "unique": unique, "confirmed": confirmed}


def gain_in_span() -> Numbers:
    """At c = d, the printed gain, and those of the paper's sum over levels and of levels computed side by side."""
    found: Numbers = {}
    for name, level in (("six", 6), ("twelve", 12)):
        delayed = setting(level).plan(1.0)
        full = delayed.without_delay().mean_span()
        in_turn = sum(level_cost(l, RATES.c) / period for l, period in enumerate(delayed.periods))
        found |= {name: full, f"{name}_sum": full / in_turn, f"{name}_side": full / delayed.mean_span()}
    short = [found[level] / found[f"{level}_side"] for level in ("six", "twelve")]
    return found | {"confirmed": 2 < short[0] < short[1]}


def price_of_the_least_loss(paths: int = 30_000, steps: int = 100) -> Numbers:
    """The p0 of the least quadratic loss for the Black-Scholes hedge on a grid, and for no hedge; and both losses."""
    market = Market()
    prices = _geometric_paths(market, paths, steps)
    left = market.maturity - np.arange(steps) * market.maturity / steps
    deviation = market.volatility * np.sqrt(left)
    ratios = ndtr(np.log(prices[:, :-1] / market.strike) / deviation + deviation / 2)
    payoff = np.maximum(prices[:, -1] - market.strike, 0.0)
    rest = payoff - np.sum(ratios * np.diff(prices, axis=1), axis=1)
    price, expected = black_scholes_price(market), expected_payoff(market)
    close = abs(rest.mean() - price) < 0.1 * abs(rest.mean() - expected)
    found = {"hedged": rest.mean(), "hedged_loss": rest.var(), "bare": payoff.mean(), "bare_loss": payoff.var()}
    return found | {"price": price, "expected": expected, "confirmed": close and rest.var() < payoff.var() / 10}


def drift_of_the_price(paths: int = 20_000, steps: int = 160) -> Numbers:
    """The mean of S_1 by Euler's scheme with the printed drift, and with that of geometric Brownian motion."""
    market = Market()
    increments = np.random.default_rng(0).normal(0.0, steps**-0.5, size=(steps, paths))
    growing, printed = np.full(paths, market.spot), np.full(paths, market.spot)
    for increment in increments:
        growing = growing * (1 + market.drift / steps + market.volatility * increment)
        printed = printed + market.drift / steps + market.volatility * printed * increment
    exact = market.spot * math.exp(market.drift)
    confirmed = abs(growing.mean() - exact) < 0.1 < abs(printed.mean() - exact)
    return {"printed": printed.mean(), "growing": growing.mean(), "exact": exact, "confirmed": confirmed}


def order_of_milstein(samples: int = 20_000) -> Numbers:
    """b, from the variance between two levels, for ``dX = dW_1, dY = X dW_2`` without Levy areas, and for one noise."""
    two, one, counts = [], [], (8, 16, 32, 64)
    for count in counts:
        fine = np.random.default_rng(count).normal(0.0, count**-0.5, size=(2, samples, count))
        coarse = fine[..., ::2] + fine[..., 1::2]
        two.append(np.var(_last_y(*fine) - _last_y(*coarse)))
        one.append(np.var(_last_geometric(fine[0]) - _last_geometric(coarse[0])))
    b_two, b_one = -fitted_exponent(counts, two), -fitted_exponent(counts, one)
    return {"two": b_two, "one": b_one, "confirmed": b_two < 1.2 and b_one > 1.7}


def long_run_variance() -> Numbers:
    """The long-run variance of the paper's plan over the variance of one gradient, which the paper matches."""
    ratios = {}
    for name, level in (("two", 2), ("six", 6)):
        delayed = plan(RATES, level, level0_samples=512, allocation=PAPER)
        ratios[name] = delayed.long_run_variance() / delayed.variance()
    return ratios | {"confirmed": 1.5 < ratios["two"] < ratios["six"]}


def _geometric_paths(market: Market, paths: int, steps: int) -> Float[np.ndarray, "{paths} {steps}+1"]:
    """Exact paths of the price on a grid."""
    step = market.maturity / steps
    noise = market.volatility * np.random.default_rng(0).normal(0.0, math.sqrt(step), size=(paths, steps))
    logs = np.cumsum(noise + (market.drift - market.volatility**2 / 2) * step, axis=1)
    return market.spot * np.exp(np.concatenate([np.zeros((paths, 1)), logs], axis=1))


def _last_y(
    first: Float[np.ndarray, "paths steps"], second: Float[np.ndarray, "paths steps"]
) -> Float[np.ndarray, " paths"]:
    """Y at time 1 of ``dX = dW_1, dY = X dW_2`` by Milstein's scheme without the Levy area, from increments."""
    return np.sum((np.cumsum(first, axis=-1) - first / 2) * second, axis=-1)


def _last_geometric(increments: Float[np.ndarray, "paths steps"]) -> Float[np.ndarray, " paths"]:
    """Y at time 1 of ``dY = Y dW`` by Milstein's scheme, from increments."""
    step = 1 / increments.shape[-1]
    return np.prod(1 + increments + (increments**2 - step) / 2, axis=-1)
