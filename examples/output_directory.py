"""The directory that an example writes into."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

# Marks a directory that an example created, so that a run may delete it.
_MARKER = ".barnabas-example"


def renew(directory: Path) -> None:
    """Delete the output of an earlier run, and create the directory.

    Exits with status 2 if the directory has files of somebody else.
    """
    marker = directory / _MARKER
    if directory.is_dir() and any(directory.iterdir()) and not marker.exists():
        print(
            f"{directory} has files that no example wrote. Choose another --output.",
            file=sys.stderr,
        )
        sys.exit(2)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    marker.touch()
