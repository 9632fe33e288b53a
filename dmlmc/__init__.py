"""Delayed multilevel Monte Carlo gradients for SGD on simulated losses.

plan a run     Rates, plan, Plan, optimal_allocation, Allocation, mean_span, sum_of_spans
write a loss   SDELoss, MultilevelLoss, QuadraticLoss, mean_loss
its gradient   naive, mlmc, delayed_mlmc, GradientEstimator
train with it  train, DivergenceError, CheckpointError
"""

from importlib.metadata import version

from dmlmc.allocation import Allocation, optimal_allocation
from dmlmc.checkpoint import CheckpointError
from dmlmc.estimators import GradientEstimator, delayed_mlmc, mlmc, naive
from dmlmc.losses import MultilevelLoss, QuadraticLoss, mean_loss
from dmlmc.rates import Rates
from dmlmc.schedule import Plan, mean_span, plan, sum_of_spans
from dmlmc.sde import SDELoss
from dmlmc.training import DivergenceError, train

__version__ = version("dmlmc")
__all__ = [
    "Allocation",
    "CheckpointError",
    "DivergenceError",
    "GradientEstimator",
    "MultilevelLoss",
    "Plan",
    "QuadraticLoss",
    "Rates",
    "SDELoss",
    "delayed_mlmc",
    "mean_loss",
    "mean_span",
    "mlmc",
    "naive",
    "optimal_allocation",
    "plan",
    "sum_of_spans",
    "train",
]
