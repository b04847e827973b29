"""Shared parts of the benchmarks: the choice of brokers, the console, and the file of figures."""

from __future__ import annotations

import contextlib
import json
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from bench import brokers

if TYPE_CHECKING:
    from collections.abc import Mapping


def new_console(width: int = 150) -> Console:
    """Return a console; its lines have `width` characters if the output is a file."""
    return Console() if sys.stdout.isatty() else Console(width=width)


def installed(names: str, console: Console) -> list[str]:
    """Return the brokers that can run; report the others.

    Args:
        names: names of brokers, separated by commas.
        console: the output of the report.
    """
    found = []
    for name in names.split(","):
        if missing := brokers.missing_for(name):
            console.print(f"  {name} is not measured: {missing}", style="yellow")
        else:
            found.append(name)
    return found


def write_figures(path: Path | None, figures: Mapping[str, object]) -> None:
    """Write the figures as JSON, with the machine; without a path, do nothing."""
    if path is not None:
        path.write_text(json.dumps({"machine": machine(), "figures": figures}, indent=1))


def machine() -> str:
    """Return the name of the processor, and the version of Python."""
    model = platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return f"{model}, Python {platform.python_version()}"
