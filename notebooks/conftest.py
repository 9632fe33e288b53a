"""Kernels show no progress bars, and nbval compares everything but stderr, where warnings differ between machines."""

import pytest


def pytest_collectstart(collector):
    if hasattr(collector, "skip_compare"):
        collector.skip_compare += ("stderr",)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup():
    with pytest.MonkeyPatch.context() as patch:  # for the kernel, which starts before the first cell
        patch.setenv("TQDM_DISABLE", "1")
        return (yield)
