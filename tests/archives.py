"""Unpacks archives, on each Python that Barnabas runs on."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: tarfile.TarFile, directory: Path) -> None:
    """Unpack an archive; refuse members outside of the directory where Python can do that."""
    # Python has the filter since 3.11.4; from 3.12 on it warns without one.
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    archive.extractall(directory)
