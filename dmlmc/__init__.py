"""Delayed multilevel Monte Carlo gradients for SGD on simulated losses.

plan a run     Rates, plan, Plan, optimal_allocation, Allocation, mean_span, sum_of_spans
write a loss   SDELoss, MultilevelLoss, QuadraticLoss, mean_loss
its gradient   naive, mlmc, delayed_mlmc, GradientEstimator
train with it  train, DivergenceError, CheckpointError, mesh
its rates      calibrate, measure_levels, fit_rates, check_list, CheckList, Measurement, level_seconds, iterates
"""

from importlib.metadata import version

from dmlmc.allocation import Allocation, optimal_allocation
from dmlmc.calibration import CheckList, calibrate, check_list
from dmlmc.checkpoint import CheckpointError
from dmlmc.devices import mesh
from dmlmc.diagnostics import Measurement, measure_levels
from dmlmc.estimators import GradientEstimator, delayed_mlmc, mlmc, naive
from dmlmc.losses import MultilevelLoss, QuadraticLoss, mean_loss
from dmlmc.rate_fits import fit_rates
from dmlmc.rates import Rates
from dmlmc.schedule import Plan, mean_span, plan, sum_of_spans
from dmlmc.sde import SDELoss
from dmlmc.timing import level_seconds
from dmlmc.training import DivergenceError, train
from dmlmc.trajectory import iterates

__version__ = version("dmlmc")
__all__ = [
    "Allocation",
    "CheckList",
    "CheckpointError",
    "DivergenceError",
    "GradientEstimator",
    "Measurement",
    "MultilevelLoss",
    "Plan",
    "QuadraticLoss",
    "Rates",
    "SDELoss",
    "calibrate",
    "check_list",
    "delayed_mlmc",
    "fit_rates",
    "iterates",
    "level_seconds",
    "mean_loss",
    "mean_span",
    "measure_levels",
    "mesh",
    "mlmc",
    "naive",
    "optimal_allocation",
    "plan",
    "sum_of_spans",
    "train",
]
