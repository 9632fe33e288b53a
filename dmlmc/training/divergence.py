"""What happens to a seed whose gradient or loss stops being finite."""

import warnings

import numpy as np
from jaxtyping import Float, Int

from dmlmc.training.record import Record

RAISE, RECORD = "raise", "record"
SILENT = "silent"  # a sweep: the record says it, and the runs go on to the last step, so that all have the same rows


class DivergenceError(FloatingPointError):
    """A gradient or a validation loss stopped being finite; the message names the method, the seed and the step.

    >>> import dmlmc, jax, jax.numpy as jnp, optax
    >>> loss = dmlmc.QuadraticLoss(dimension=1, L=1.0, M=1.0, rates=dmlmc.Rates(b=1.8, c=1.0, d=1.0))
    >>> try:
    ...     dmlmc.train(dmlmc.naive(loss, 0, 1), optax.sgd(1e30), jnp.ones(1), 9, jax.random.key(0), progress=False)
    ... except DivergenceError as error:
    ...     print(str(error).partition(" at")[0])
    naive, seed 0: the gradient is not finite
    """


def note_gradients(method: str, record: Record, first_steps: Int[np.ndarray, " seeds"], policy: str) -> None:
    """Note the seeds with a gradient that was not finite, at ``first_steps``; -1 for the others."""
    for seed in np.flatnonzero((first_steps >= 0) & np.isnan(record.diverged_at)):
        first = int(first_steps[seed])
        hint = "a smaller learning rate or clipped gradients may help" if first else "look at params and at the loss"
        _report(f"{method}, seed {seed}: the gradient is not finite at step {first}; {hint}.", policy)
        record.diverged_at[seed] = first


def note_losses(method: str, record: Record, losses: Float[np.ndarray, " seeds"], policy: str) -> None:
    """Note the seeds with a loss that is not finite at the present step."""
    for seed in np.flatnonzero(~np.isfinite(losses) & np.isnan(record.diverged_at)):
        _report(
            f"{method}, seed {seed}: the loss is {losses[seed]} at step {record.step}; "
            "a smaller learning rate or clipped gradients may help.",
            policy,
        )
        record.diverged_at[seed] = record.step


def check_loaded(method: str, record: Record, policy: str) -> None:
    """Raise for a seed that diverged before the checkpoint that a run goes on from, if it should."""
    if policy == RAISE:
        for seed in np.flatnonzero(~np.isnan(record.diverged_at)):
            _report(f"{method}, seed {seed}: it diverged at step {record.diverged_at[seed]:.0f}.", policy)


def _report(message: str, policy: str) -> None:
    if policy == RAISE:
        raise DivergenceError(message)
    if policy == RECORD:
        warnings.warn(message, RuntimeWarning, stacklevel=2)
