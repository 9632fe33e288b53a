"""The three exponents that decide what a multilevel method costs and whether delay is possible."""

import warnings
from dataclasses import dataclass

from dmlmc._internal.checks import real


@dataclass(frozen=True)
class Rates:
    """The rates b, c and d of a multilevel loss with coupled differences ``D_l = F_l - F_(l-1)``.

    ======  ============================  ==================================================  =============
    field   paper                         meaning                                             experiment
    ======  ============================  ==================================================  =============
    ``b``   Assumption 2, variance        ``E|grad D_l - mean|^2 <= M 2^(-b l)``              1.8
    ``c``   Assumption 1, cost            work and span of one level-l path are ``2^(c l)``   1
    ``d``   Assumption 3, smoothness      ``grad D_l F`` is ``2^(-d l) L``-Lipschitz          1
    ======  ============================  ==================================================  =============

    The other symbols of the paper and where they live here: ``l_max`` is ``Plan.max_level``, ``N`` the
    argument ``samples`` of ``dmlmc.plan``, ``N_l`` is ``Plan.samples[l]``, ``floor(2^(d l))`` is
    ``Plan.periods[l]`` and ``tau_l(t)`` is ``Plan.last_refresh(l, t)``.

    A rate b that does not exceed c is allowed, with a warning: the finest levels then dominate the work of MLMC, and
    the paper's O(N) complexity does not hold.

    >>> Rates(b=1.8, c=1.0, d=1.0)
    Rates(b=1.8, c=1.0, d=1.0)
    """

    b: float
    c: float
    d: float

    def __post_init__(self):
        for name in ("b", "c", "d"):
            object.__setattr__(self, name, real(f"Rates: {name}", getattr(self, name)))
        if self.b <= 0:
            raise ValueError(f"Rates: b must be positive (variance has to fall with the level), got {self.b}.")
        if self.c <= 0:
            raise ValueError(f"Rates: c must be positive (cost has to grow with the level), got {self.c}.")
        if self.d < 0:
            raise ValueError(f"Rates: d must be at least 0 (d = 0 refreshes every level at every step), got {self.d}.")
        if self.b <= self.c:
            warnings.warn(
                f"Rates: b = {self.b} does not exceed c = {self.c}; MLMC's gain in work over naive needs b > c "
                "(for an SDE, a solver of strong order 1 such as Milstein gives b near 2).",
                stacklevel=3,
            )
