"""A minimal client for headless Chromium over its DevTools protocol."""

import base64
import json
import os
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

import websocket

NAMES = ("chromium", "chromium-browser", "google-chrome")
INSTALL = "no Chromium found: install it (Debian: apt-get install chromium) or set CHROMIUM to its path"
FLAGS = (
    "--headless --disable-gpu --no-first-run --disable-background-networking --disable-component-update --disable-sync "
    "--disable-quic --remote-debugging-port=0 --window-size=1400,1000"
)


def find():
    """The path of a Chromium, or None."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def wait_for(condition, seconds, what):
    """Poll until ``condition()`` is true, and return its value."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.2)
    raise TimeoutError(f"{what} did not happen within {seconds} s")


class Page:
    """One page of a Chromium with a new profile in ``directory``. As a context manager it ends the browser on exit."""

    def __init__(self, directory: Path):
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium does not run as root with a sandbox
        command = [find(), *FLAGS.split(), *sandbox, f"--user-data-dir={directory}", "about:blank"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port = directory / "DevToolsActivePort"
        wait_for(lambda: port.exists() and port.read_text(), 60, "the start of Chromium")
        with urllib.request.urlopen(f"http://127.0.0.1:{port.read_text().split()[0]}/json/list") as answer:
            (target,) = [target for target in json.load(answer) if target["type"] == "page"]
        self.socket = websocket.create_connection(target["webSocketDebuggerUrl"], timeout=900, suppress_origin=True)
        self.calls = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        self.process.terminate()
        self.process.wait(30)

    def call(self, method, **parameters):
        self.calls += 1
        self.socket.send(json.dumps({"id": self.calls, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self.socket.recv())
            if answer.get("id") == self.calls:  # other messages are events
                assert "error" not in answer, answer
                return answer["result"]

    def evaluate(self, expression):
        """The value of a JavaScript expression; promises are awaited."""
        done = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def press(self, key, code):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
