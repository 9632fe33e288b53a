"""Delayed multilevel Monte Carlo gradients for SGD on simulated losses.

Plan a run
    Rates               the exponents b, c and d: how variance, cost and smoothness change with the level
    plan                from rates to a Plan: samples and refresh periods of every level
    Plan                who computes when, and what it costs in work and span
    optimal_allocation  sample counts for any variances and costs
    Allocation          what it returns

Write a loss
    SDELoss             the terminal loss of an SDE: drift, diffusion, terminal
    MultilevelLoss      the interface, for a hierarchy of your own
    QuadraticLoss       one of which every constant is known
    mean_loss           its mean over fresh paths: a validation loss

Estimate its gradient
    delayed_mlmc        delayed MLMC: fine levels are refreshed rarely and reused in between
    mlmc                multilevel Monte Carlo
    naive               independent paths at one level
    streaming_mlmc      streaming MLMC: every level a chunk at a time, so that a step is as short as level 0
    randomised_mlmc     levels left out by chance: no staleness, more noise
    GradientEstimator   what these return: init, estimate, work, span

Train
    train               many seeds in one compiled program, with checkpoints and a record
    sweep               many optimisers and learning rates in one compiled program
    mesh                devices that share the samples, the seeds, or both
    Evaluation          a run at a step: what a callback gets, and where a run can go on
    CheckpointError     raised for a checkpoint that cannot be used
    DivergenceError     raised for a gradient or loss that is not finite

Measure its rates
    calibrate           rates for a plan in one call, with a check list
    measure_levels      gradients level by level, as a Measurement
    Measurement         means of blocks, and tables of them
    fit_rates           b, c and d from a Measurement, with intervals
    CheckList           tails, telescoping, rates and a verdict, to print
    level_seconds       seconds per level
    iterates            points that an optimisation passes through, to measure at
"""

from importlib.metadata import version

from dmlmc.allocation import Allocation, optimal_allocation, plan
from dmlmc.calibration.checklist import CheckList, calibrate
from dmlmc.calibration.fits import fit_rates
from dmlmc.calibration.levels import Measurement, measure_levels
from dmlmc.calibration.timing import level_seconds
from dmlmc.devices import mesh
from dmlmc.estimators import GradientEstimator, delayed_mlmc, mlmc, naive
from dmlmc.losses import MultilevelLoss, QuadraticLoss, mean_loss
from dmlmc.randomised import randomised_mlmc
from dmlmc.rates import Rates
from dmlmc.schedule import Plan
from dmlmc.sde import SDELoss
from dmlmc.streaming.estimator import streaming_mlmc
from dmlmc.training.checkpoint import CheckpointError
from dmlmc.training.divergence import DivergenceError
from dmlmc.training.evaluation import Evaluation
from dmlmc.training.iterates import iterates
from dmlmc.training.loop import train
from dmlmc.training.sweep import sweep

__version__ = version("dmlmc")
__all__ = [
    "Allocation",
    "CheckList",
    "CheckpointError",
    "DivergenceError",
    "Evaluation",
    "GradientEstimator",
    "Measurement",
    "MultilevelLoss",
    "Plan",
    "QuadraticLoss",
    "Rates",
    "SDELoss",
    "calibrate",
    "delayed_mlmc",
    "fit_rates",
    "iterates",
    "level_seconds",
    "mean_loss",
    "measure_levels",
    "mesh",
    "mlmc",
    "naive",
    "optimal_allocation",
    "plan",
    "randomised_mlmc",
    "streaming_mlmc",
    "sweep",
    "train",
]
