"""JupyterLab in headless Chromium. ``make test-lab`` runs this, ``make test`` skips it."""

import json
import os
import secrets
import shutil
import subprocess
import sys
from contextlib import contextmanager

import pytest

from dmlmc.reproduce import jobs
from tests.helpers import chromium

pytestmark = [
    pytest.mark.skipif("DMLMC_LAB" not in os.environ, reason="JupyterLab in a browser: make test-lab"),
    pytest.mark.skipif(chromium.find() is None, reason=chromium.INSTALL),
]

# A notebook, the cell with its widget, and what the slider of l_max shows after one step to the left.
WIDGETS = [("00_start_here.ipynb", "draw.plan_explorer", "5"), ("05_streaming.ipynb", "draw.raster_explorer", "3")]
NOTEBOOK = "[...jupyterapp.shell.widgets('main')].find(widget => widget.context?.path?.endsWith('.ipynb'))"
# The DOM has only the visible cells, so everything but the sliders is read from the notebook's model.
READY = f"""(async () => {{
    await jupyterapp.restored;
    const panel = {NOTEBOOK};
    await panel.context.ready; await panel.sessionContext.ready;
    jupyterapp.shell.activateById(panel.id);
    return panel.sessionContext.session.kernel.name;
}})()"""
STATUS = f"({NOTEBOOK}).sessionContext.session.kernel.status"
CELLS = f"({NOTEBOOK}).content.model.toJSON().cells"
SHOW = f"""(async () => {{
    const content = ({NOTEBOOK}).content;
    const index = content.model.toJSON().cells.findIndex(cell => cell.source.includes('WIDGET'));
    content.activeCellIndex = index;
    await content.scrollToItem(index, 'start');
}})()"""
ACTIVE = ".jp-Cell.jp-mod-active"
SLIDER = f"[...document.querySelectorAll('{ACTIVE} .widget-slider')].find(one => one.textContent.includes('l_max'))"
PICTURE = f"document.querySelector('{ACTIVE} .jp-OutputArea .widget-image')"
PIXELS = f"""(async () => {{
    const bytes = new Uint8Array(await (await fetch(({PICTURE}).src)).arrayBuffer());
    return bytes.length + ' ' + bytes.reduce((hash, byte) => (31 * hash + byte) | 0, 0);
}})()"""


@contextmanager
def jupyterlab(directory, name):
    """A JupyterLab on loopback with one notebook open, as in ``make lab``. Yields its URL."""
    config, runtime = directory / "config", directory / "runtime"
    (config / "labconfig").mkdir(parents=True)
    quiet = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
    (config / "labconfig" / "page_config.json").write_text(json.dumps(quiet))
    environment = os.environ | {"JUPYTER_CONFIG_DIR": str(config), "JUPYTER_RUNTIME_DIR": str(runtime)}
    environment |= {"JUPYTER_TOKEN": secrets.token_hex(16), "PYTHONPATH": str(jobs.NOTEBOOKS.parent)}
    options = ["--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0", "--expose-app-in-browser"]
    options += ["--ServerApp.shutdown_no_activity_timeout=900"]  # the server exits by itself if this test dies
    command = [sys.executable, "-m", "jupyterlab", str(directory / "notebooks" / name), *options]
    with (directory / "lab.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        chromium.wait_for(lambda: [*runtime.glob("jpserver-*.json")], 60, "the start of JupyterLab")
        (information,) = runtime.glob("jpserver-*.json")
        url = json.loads(information.read_text())["url"]
        yield f"{url}lab/tree/{name}?token={environment['JUPYTER_TOKEN']}"
    finally:
        server.terminate()
        server.wait(60)


@contextmanager
def opened(directory, name):
    """A page with a copy of a notebook in JupyterLab."""
    notebooks, ignored = jobs.NOTEBOOKS, shutil.ignore_patterns("executed", "*.py")
    shutil.copytree(notebooks, directory / "notebooks", ignore=ignored)
    shutil.copytree(notebooks.parent / "figures" / "data", directory / "figures" / "data")  # some notebooks read it
    with jupyterlab(directory, name) as address, chromium.Page(directory / "chromium") as page:
        page.call("Page.navigate", url=address)
        chromium.wait_for(
            lambda: page.evaluate(f"'jupyterapp' in window && !!({NOTEBOOK})"), 60, "opening the notebook"
        )
        yield page


@pytest.mark.parametrize(("name", "widget", "after"), WIDGETS, ids=[name for name, _, _ in WIDGETS])
def test_a_notebook_runs_in_jupyterlab_and_its_sliders_change_the_picture(name, widget, after, tmp_path):
    with opened(tmp_path, name) as page:
        assert page.evaluate(READY) == "python3"
        page.evaluate("jupyterapp.commands.execute('notebook:run-all-cells')")
        chromium.wait_for(lambda: page.evaluate(STATUS) == "idle", 300, "an idle kernel")
        code = [cell for cell in page.evaluate(CELLS) if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
        assert not [output for cell in code for output in cell["outputs"] if output["output_type"] == "error"]

        page.evaluate(SHOW.replace("WIDGET", widget))
        chromium.wait_for(lambda: page.evaluate(f"!!({PICTURE}) && !!({SLIDER})"), 30, "drawing the widget")
        before = page.evaluate(PIXELS)
        page.evaluate(f"({SLIDER}).querySelector('.noUi-handle').focus()")
        page.press("ArrowLeft", 37)
        chromium.wait_for(lambda: page.evaluate(PIXELS) != before, 30, "a new picture")
        assert page.evaluate(f"({SLIDER}).querySelector('.widget-readout').textContent") == after

        screenshot = tmp_path / "lab.png"
        page.screenshot(screenshot)
    assert screenshot.stat().st_size > 50_000  # a blank page has a tenth of that
    if "DMLMC_SCREENSHOTS" in os.environ:
        shutil.copy(screenshot, os.path.join(os.environ["DMLMC_SCREENSHOTS"], f"{name}.png"))
