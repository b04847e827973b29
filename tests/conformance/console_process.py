"""A console process whose pages a browser opens, and names that a page must survive."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import IO
from urllib.parse import quote

from tools.chromium import Chromium
from tools.console_output import READY, console_output, read_line

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
        self.url = read_line(output, READY)

    def read_password(self) -> None:
        """Take the next one-time password."""
        self.password = read_line(self._output, r"password for one log-in: (\S+)\n")

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
    with console_output("-b", bootstrap, "--allow-changes", *options) as output:
        yield Running(output, bootstrap)
