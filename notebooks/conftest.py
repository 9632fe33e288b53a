"""Progress bars go to stderr and differ from run to run: nbval compares everything else."""


def pytest_collectstart(collector):
    if hasattr(collector, "skip_compare"):
        collector.skip_compare += ("stderr",)
