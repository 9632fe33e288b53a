"""Delayed multilevel Monte Carlo gradients for SGD on simulated losses."""

from dmlmc.allocation import Allocation, optimal_allocation
from dmlmc.estimators import GradientEstimator, delayed_mlmc, mlmc, naive
from dmlmc.losses import MultilevelLoss, QuadraticLoss, mean_loss
from dmlmc.rates import Rates
from dmlmc.schedule import Plan, mean_span, plan, sum_of_spans
from dmlmc.sde import SDELoss
