"""A short training run in processes that a test can kill. The import makes no JAX array, so it can be forked."""

import multiprocessing
import os
import pickle
import random
import signal
import time
import traceback

import jax
import numpy as np
import optax

import dmlmc
from dmlmc.training import checkpoint


def train(directory=None, steps=300, groups=1):
    """On several devices ``groups`` of them share the seeds, and the devices of a group share every gradient."""
    rates = dmlmc.Rates(1.8, 1.0, 1.0)
    quadratic = dmlmc.QuadraticLoss(dimension=3, L=1.0, M=1.0, rates=rates)
    return dmlmc.train(
        dmlmc.delayed_mlmc(quadratic, dmlmc.plan(rates, 1, samples=[8, 2], allocation="paper")),
        optax.adam(0.1),
        jax.numpy.ones(3),
        steps,
        jax.random.split(jax.random.key(0), 2),
        validation=lambda params: quadratic.mean(params, 1),
        evaluate_every=50,
        directory=directory,
        checkpoint_every=1,
        chunk_steps=1,
        mesh=dmlmc.mesh(seeds=groups) if jax.device_count() > 1 else None,
        progress=False,
    )


def start(directory, *, devices=1, **options):
    """Start ``in_a_process`` in a fresh process, forked from one that has imported everything and computed nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=in_a_process, args=(devices, directory), kwargs=options)
    process.start()
    return process


def written(directory):
    """When the checkpoint was written. 0 if there is none."""
    try:
        return (directory / checkpoint.FILE_NAME).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def wait_for_checkpoint(directory, before, *processes):
    """Wait until there is another checkpoint than the one that was written at the time ``before``."""
    while written(directory) == before:
        assert all(process.is_alive() for process in processes), "the run ended before it could be killed"
        time.sleep(0.001)


def kill(process):
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL, "the run ended before it could be killed"


def kill_repeatedly(directory, times, **options):
    """Start a run ``times`` times and kill it at random moments. How often it was killed in the training itself."""
    chance, in_training = random.Random(0), 0
    for count in range(times):
        before, process = written(directory), start(directory, **options)
        if count % 4:  # in the training itself
            wait_for_checkpoint(directory, before, process)
            time.sleep(chance.uniform(0, 0.02))
        else:  # while it starts, reads the checkpoint, traces and compiles
            until = time.monotonic() + chance.uniform(0, 1.5)
            while time.monotonic() < until and written(directory) == before:  # on a fast machine it is past that sooner
                time.sleep(0.001)
        kill(process)
        in_training += written(directory) > before
    return in_training


def in_a_process(devices, directory, *, dies_at_save=None, result=None, log=None, distributed=None, **options):
    """``train`` on so many devices, killed halfway through checkpoint number ``dies_at_save``.

    What it returns goes to the file ``result``, and stderr, also that of JAX's own threads, to the file ``log``.
    ``distributed`` are arguments of ``jax.distributed.initialize``.
    """
    if log is not None:
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    jax.config.update("jax_num_cpu_devices", devices)
    if distributed is not None:
        jax.distributed.initialize(**distributed)
    write, saves = np.savez, []

    def dying(file, **entries):
        saves.append(1)
        if len(saves) == dies_at_save:
            file.write(b"half of a checkpoint")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        write(file, **entries)

    np.savez = dying
    try:
        found = train(directory, **options)
    except Exception:
        traceback.print_exc()
        raise
    finally:
        if distributed is not None:
            jax.distributed.shutdown()  # as Python does at its exit, but multiprocessing does not
    if result is not None:
        params, record = found
        result.write_bytes(pickle.dumps((np.asarray(params), record)))
