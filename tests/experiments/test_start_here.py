"""The exact loss of notebook 00, and its first code cell."""

import ast

import jax
import numpy as np
import pandas as pd
import pytest

from dmlmc.experiments import start_here
from dmlmc.reproduce import jobs

nbformat = pytest.importorskip("nbformat")


def first_code():
    """The first code cell after the parameters."""
    code = [cell for cell in nbformat.read(jobs.NOTEBOOKS / "00_start_here.ipynb", 4).cells if cell.cell_type == "code"]
    assert code[0].metadata["tags"] == ["parameters"]
    return ast.parse(code[1].source)


def loss_of_the_notebook():
    wanted = (ast.Import, ast.ImportFrom, ast.Assign)
    statements = [node for node in first_code().body if isinstance(node, wanted)]
    names = [getattr(getattr(node, "targets", [None])[0], "id", None) for node in statements]
    scope = {}
    exec(compile(ast.Module(statements[: names.index("loss") + 1], []), "notebook", "exec"), scope)
    return scope["loss"]


def test_the_first_cell_of_the_notebook_imports_the_library_and_what_it_needs_only():
    imported = {node for node in first_code().body if isinstance(node, ast.Import | ast.ImportFrom)}
    assert {name.name for node in imported for name in node.names} == {"jax", "jax.numpy", "optax", "dmlmc"}


@pytest.mark.parametrize(("theta", "level"), [(0.1, 0), (0.8, 0), (0.8, 2)])
def test_the_exact_loss_is_that_of_the_notebooks_sde(theta, level):
    loss = loss_of_the_notebook()
    keys = jax.random.split(jax.random.key(0), 2**16)
    losses = np.asarray(loss.losses({"theta": jax.numpy.array(theta)}, loss.batch(keys, level)))
    error = losses.std() / 2**8
    exact = start_here.exact_loss(theta, loss.coarsest_steps * 2**level)
    assert abs(losses.mean() - exact) < 3 * error < 0.03 * exact


def test_no_theta_has_a_smaller_loss_than_the_best_one():
    for steps in (4, 64):
        thetas = np.linspace(0.05, 2.5, 1001)
        excess = start_here.excess_loss(thetas, steps)
        assert excess.min() >= 0 and abs(thetas[excess.argmin()] - start_here.best_theta(steps)) < 0.0025


def test_the_interval_of_a_curve_is_that_of_the_logarithms():
    runs = pd.DataFrame({"method": "MLMC", "seed": range(3), "step": 4, "span": 64.0, "loss": np.exp([1.0, 2.0, 3.0])})
    (row,) = start_here.mean_curves(runs).itertuples()
    assert np.log([row.loss, row.low, row.high]) == pytest.approx([2.0, -0.484, 4.484], abs=1e-3)
