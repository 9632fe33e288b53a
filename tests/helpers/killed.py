"""A short training run in a process that a test can kill. The import makes no JAX array, so it can be forked."""

import os
import signal

import jax
import numpy as np
import optax

import dmlmc

STEPS = 600


def train(directory=None):
    rates = dmlmc.Rates(1.8, 1.0, 1.0)
    quadratic = dmlmc.QuadraticLoss(dimension=3, L=1.0, M=1.0, rates=rates)
    return dmlmc.train(
        dmlmc.delayed_mlmc(quadratic, dmlmc.plan(rates, 2, samples=[8, 4, 2], allocation="paper")),
        optax.adam(0.1),
        jax.numpy.ones(3),
        STEPS,
        jax.random.split(jax.random.key(0), 2),
        validation=lambda params: quadratic.mean(params, 2),
        evaluate_every=50,
        directory=directory,
        checkpoint_every=1,
        chunk_steps=1,
        progress=False,
    )


def in_a_process(settings, directory, dies_at_save=None):
    """``train`` with the parent's JAX settings, killed halfway through checkpoint number ``dies_at_save``."""
    for name, value in settings.items():
        jax.config.update(name, value)
    write, saves = np.savez, []

    def dying(file, **entries):
        saves.append(1)
        if len(saves) == dies_at_save:
            file.write(b"half of a checkpoint")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        write(file, **entries)

    np.savez = dying
    train(directory)
