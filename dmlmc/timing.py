"""Seconds, measured."""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pandas as pd
from jax import Array

from dmlmc._checks import integer
from dmlmc.losses import MultilevelLoss


def level_seconds(
    loss: MultilevelLoss, params: Any, key: Array, *, max_level: int, samples: int | None = None, repeats: int = 5
) -> pd.DataFrame:
    """Measured seconds per sample and level: ``forward`` for D_l alone, ``gradient`` for forward and backward pass.

    The median of ``repeats`` runs over a batch of ``samples``, by default as many as the loss asks for by
    ``samples_at_once``, or else 64. Neither compilation nor the drawing of noise is included.

    >>> from dmlmc import QuadraticLoss, Rates
    >>> quadratic = QuadraticLoss(dimension=2, L=2.0, M=1.0, rates=Rates(b=1.8, c=1.0, d=1.0))
    >>> level_seconds(quadratic, jnp.ones(2), jr.key(0), max_level=1).columns.tolist()
    ['level', 'forward', 'gradient']
    """
    max_level = integer("level_seconds: max_level", max_level, minimum=0)
    repeats = integer("level_seconds: repeats", repeats, minimum=1)
    if samples is not None:
        samples = integer("level_seconds: samples", samples, minimum=1)
    counts = [samples or loss.samples_at_once(level) or 64 for level in range(max_level + 1)]
    finest = eqx.filter_jit(loss.batch)(jr.split(key, max(counts)), max_level)  # drawn once, coarsened for the others
    rows = []
    for level, count in enumerate(counts):
        noises = jax.tree.map(lambda leaf, count=count: leaf[:count], finest)
        for _ in range(max_level - level):
            noises = jax.vmap(loss.coarsen)(noises)

        def total(params, noises, level=level):
            return jnp.mean(loss.differences(params, noises, level))

        row: dict[str, float] = {"level": level}
        for name, function in (("forward", total), ("gradient", eqx.filter_grad(total))):
            compiled = eqx.filter_jit(function)
            jax.block_until_ready(compiled(params, noises))
            clock = [time.perf_counter()]
            for _ in range(repeats):
                jax.block_until_ready(compiled(params, noises))
                clock.append(time.perf_counter())
            row[name] = float(np.median(np.diff(clock))) / count
        rows.append(row)
    return pd.DataFrame(rows)
