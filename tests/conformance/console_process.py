"""A console process whose pages a browser opens, and names that a page must survive."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import IO
from urllib.parse import quote

from tools.chromium import Chromium

HOSTILE = '"><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
# The longest name of a topic, in which no browser breaks a line by itself.
LONG = "x" * 249


class Running:
    """A console process; `url` has no slash at its end."""

    def __init__(self, output: IO[str], bootstrap: str) -> None:
        self._output = output
        self.bootstrap = bootstrap
        self.password = ""
        self.read_password()
        self.url = self._read(r"ready (\S+)/\n")

    def read_password(self) -> None:
        """Take the next one-time password."""
        self.password = self._read(r"password for one log-in: (\S+)\n")

    def _read(self, pattern: str) -> str:
        """Return the text of the next line that has a form; other lines tell of the brokers."""
        found = next(filter(None, (re.fullmatch(pattern, line) for line in self._output)))
        return str(found[1])

    def log_in(self, browser: Chromium, page: str) -> None:
        """Log in by the keyboard, and go to a page."""
        browser.open(f"{self.url}/login?next={quote(page)}")
        browser.type(self.password)
        browser.press("Enter")
        browser.wait("location.pathname !== '/login' && document.readyState === 'complete'")
        self.read_password()


@contextlib.contextmanager
def running_console(bootstrap: str, *options: str) -> Iterator[Running]:
    """Start a console with forms, and end it."""
    words = [sys.executable, "-m", "barnabas", "console", "-b", bootstrap, "--port", "0"]
    words += ["--allow-changes", *options]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Running(process.stdout, bootstrap)
        finally:
            process.terminate()
