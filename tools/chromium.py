"""Drives Chromium by its DevTools protocol over two pipes; no package is needed.

The console's tests and `tools/console_pictures.py` use it. Chromium is Debian's `chromium`.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

__all__ = ["IS_INSTALLED", "BrowserError", "Chromium"]

PROGRAM = shutil.which("chromium")
IS_INSTALLED = PROGRAM is not None
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-extensions", "--mute-audio", "--hide-scrollbars", "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)  # fmt: skip
# Chromium starts slowly on a busy machine.
_LIMIT_S = 120.0
# Virtual keys of the DevTools protocol.
_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40}


class BrowserError(Exception):
    """Chromium refused a command, or a page had an error."""


# Of pictures with loss, in percent: text stays sharp, and a page needs some 20 KB.
_QUALITY = 60


class Chromium:
    """A headless Chromium with one page; use it in a `with` block."""

    def __init__(self) -> None:
        assert PROGRAM is not None, "chromium is missing"
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()

        def take_pipes() -> None:
            # Chromium reads commands from descriptor 3 and writes responses to 4.
            # A descriptor that already has its number would stay closed on exec, so both move.
            os.dup2(to_browser, 103)
            os.dup2(from_browser, 104)
            for number in (3, 4):
                os.dup2(100 + number, number)
                os.close(100 + number)

        self._process = subprocess.Popen(
            [PROGRAM, *_FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, preexec_fn=take_pipes,  # noqa: PLW1509 - no threads run yet
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        # Events that have arrived, as (method, parameters).
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._session: str | None = None

    def __enter__(self) -> Self:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send("Page.setLifecycleEventsEnabled", enabled=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    # The protocol

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result.

        Raises:
            BrowserError: Chromium refuses the command, or does not respond in time.
        """
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _LIMIT_S
        while True:
            response = self._receive(deadline)
            if response.get("id") == self._number:
                if "error" in response:
                    raise BrowserError(f"{method}: {response['error']}")
                result: dict[str, Any] = response["result"]
                return result

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                raise BrowserError("Chromium does not respond")
            data = os.read(self._read, 1 << 20)
            if not data:
                raise BrowserError("Chromium has ended")
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self.events.append((message["method"], message.get("params", {})))
        return message

    # Pages

    def open(self, url: str) -> None:
        """Open an address and wait until the page is loaded."""
        self.events.clear()
        loader = self.send("Page.navigate", url=url)["loaderId"]
        self.wait_for_load(loader)

    def wait_for_load(self, loader: str | None = None) -> None:
        """Wait for the end of a navigation that has begun: of this one, or of any."""
        deadline = time.monotonic() + _LIMIT_S
        while not any(
            method == "Page.lifecycleEvent"
            and event["name"] == "load"
            and loader in {None, event["loaderId"]}
            for method, event in self.events
        ):
            self._receive(deadline)

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression in the page.

        Raises:
            BrowserError: the expression threw an error.
        """
        result = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            raise BrowserError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def wait(self, script: str, seconds: float = 60.0) -> Any:
        """Evaluate an expression until its value is true, and return it.

        Raises:
            BrowserError: the value does not become true in time.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            value = self.run(script)
            if value:
                return value
            time.sleep(0.1)
        raise BrowserError(f"not true within {seconds} s: {script}")

    def press(self, key: str) -> None:
        """Press a key: Tab, Enter, Escape or ArrowDown."""
        code = _KEYS[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            more = text if kind == "keyDown" else {}
            self.send(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key,
                windowsVirtualKeyCode=code, **more,
            )  # fmt: skip

    def type(self, text: str) -> None:
        """Type a text into the focused field.

        A field with `autofocus` may get the focus after its page is loaded, so this waits for it.
        """
        self.wait("document.activeElement !== document.body")
        self.send("Input.insertText", text=text)

    def page_errors(self) -> list[str]:
        """Return the errors of scripts and of the content policy since the page was opened."""
        self.run("0")
        found = []
        for method, parameters in self.events:
            if method == "Runtime.exceptionThrown":
                found.append(str(parameters["exceptionDetails"]))
            elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
                found.append(parameters["entry"]["text"])
        return found

    def shape(self, width: int, height: int, *, dark: bool) -> None:
        """Set the size of the page (CSS pixels) and the color scheme of the user."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, file: Path) -> None:
        """Write a screenshot of the window as a PNG file, or as a small WebP file."""
        kind = file.suffix.removeprefix(".")
        quality = {} if kind == "png" else {"quality": _QUALITY}
        data = self.send("Page.captureScreenshot", format=kind, **quality)["data"]
        file.write_bytes(base64.b64decode(data))
