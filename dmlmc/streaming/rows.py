"""Which coupled pairs a device computes, and where the states of their ways forward are kept."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int


class Rows(NamedTuple):
    """The coupled pairs of all streamed levels on one device, in one axis.

    >>> rows = Rows.of([(1, 5, 2), (2, 3, 4)], devices=2, groups=2)  # level, samples, period
    >>> rows.level.tolist(), rows.place.tolist()
    ([1, 1, 1, 1, 2, 2], [0, 1, 2, 3, 0, 1])
    >>> [[int(first) for _, first in rows.places(age)] for age in range(5)]
    [[0, 8], [4, 10], [4, 12], [0, 14], [0, 14]]
    """

    level: Int[np.ndarray, " pairs"]
    samples: Int[np.ndarray, " pairs"]  # of the whole level, on all devices
    period: Int[np.ndarray, " pairs"]
    share: Int[np.ndarray, " pairs"]  # pairs of the level per device
    place: Int[np.ndarray, " pairs"]  # of the pair in its level, on this device

    @classmethod
    def of(cls, levels: list[tuple[int, int, int]], devices: int, groups: int) -> "Rows":
        """``levels`` has level, samples and period. The first one gets more rows, so that groups are equally large.

        Rows beyond the samples of a level are simulated and count nothing.
        """
        shares = [-(-samples // devices) for _, samples, _ in levels]
        shares[0] += -sum(shares) % groups
        level, samples, period, share = (np.repeat(values, shares) for values in (*zip(*levels, strict=True), shares))
        return cls(level, samples, period, share, np.concatenate([np.arange(share) for share in shares]))

    def places(self, age: Array) -> list[tuple[slice, Array]]:
        """For each level its rows, and its first place at a step of a run, in an array of ``sum of period`` places.

        A cohort of even number keeps its chunks in order, one of odd number in reverse. So the way forward fills the
        places that the way back has just left.
        """
        found, first = [], 0
        for row in np.flatnonzero(self.place == 0).tolist():
            count, period = int(self.share[row]), int(self.period[row])
            chunk, cohort = age % period, age // period
            place = jnp.where(cohort % 2 == 0, chunk, period - 1 - chunk)
            found.append((slice(row, row + count), first + count * place))
            first += count * period
        return found

    def number(self, index: Array) -> Int[Array, " pairs"]:
        """A number for the first chunk of each pair, its ``index`` being that among all of its level.

        Those of its other chunks follow, so every chunk of a step's cohorts has a number of its own.
        """
        first = np.flatnonzero(self.place == 0)
        counts = self.samples[first] * self.period[first]
        return jnp.asarray(np.repeat(np.cumsum(counts) - counts, self.share[first]) + index * self.period)
