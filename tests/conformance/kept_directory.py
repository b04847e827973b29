"""A data directory that a release has written, and the contents that its brokers served from it.

`python -m conformance.kept_directory` (in tests/) writes those of this version. It is done once for
each release, and the files of earlier releases stay.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from barnabas.testing.broker_process import BrokerProcess
from jvm.directory_contents import Contents
from jvm.directory_settings import SETTINGS

FOLDER = Path(__file__).parent / "kept"
DATA, MORE = "data", "more"
_CONTENTS = "contents.json"
# A release's files grow older than any retention, so nothing may expire while they are compared.
_FOREVER_MS = str(10**15)
KEPT_SETTINGS = {
    **SETTINGS,
    "log.initial.task.delay.ms": _FOREVER_MS,
    "log.retention.check.interval.ms": _FOREVER_MS,
    "offsets.retention.check.interval.ms": _FOREVER_MS,
}
# Producers expire after at most 25 days, when a log is loaded.
_EXPIRING = "producers"


class Kept(NamedTuple):
    """The files of one release."""

    release: str
    archive: Path


def kept_releases() -> list[Kept]:
    """Return the files of all releases."""
    return [Kept(path.name.removesuffix(".zip"), path) for path in sorted(FOLDER.glob("*.zip"))]


def unpack(kept: Kept, directory: Path) -> dict[str, Any]:
    """Write the data directories, and return the described contents."""
    with zipfile.ZipFile(kept.archive) as archive:
        archive.extractall(directory)
    described: dict[str, Any] = json.loads((directory / _CONTENTS).read_text())
    return described


def broker_on(directory: Path, settings: dict[str, str]) -> BrokerProcess:
    """Return a broker for the two data directories."""
    paths = f"{directory / DATA},{directory / MORE}"
    return BrokerProcess(directory, settings, ["--data-dir", paths])


def described(contents: Contents) -> dict[str, Any]:
    """Return all contents as JSON has them, without what expires."""
    found = {
        name: {key: value for key, value in each.items() if key != _EXPIRING}
        if isinstance(each, dict)
        else each
        for name, each in contents.describe_contents().items()
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(found, enc_hook=_plain))
    return plain


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytearray | memoryview) else repr(value)


def write(archive: Path) -> None:
    """Write data directories by the broker of this version, and keep them."""
    with tempfile.TemporaryDirectory() as top:
        directory = Path(top)
        with broker_on(directory, SETTINGS).start() as broker:
            contents = Contents(broker.bootstrap)
            contents.fill()
            contents.await_periodic_work([directory / DATA, directory / MORE])
            found = described(contents)
            broker.stop()
        text = json.dumps({"start_ms": contents.start_ms, "contents": found})
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_LZMA) as made:
            # `ZipInfo` has no owner and no time of this machine.
            made.writestr(zipfile.ZipInfo(_CONTENTS), text, zipfile.ZIP_LZMA)
            for path in sorted(directory.rglob("*")):
                if path.is_file() and path.relative_to(directory).parts[0] in (DATA, MORE):
                    name = zipfile.ZipInfo(str(path.relative_to(directory)))
                    made.writestr(name, path.read_bytes(), zipfile.ZIP_LZMA)


if __name__ == "__main__":
    target = FOLDER / f"{version('barnabas')}.zip"
    if target.exists() and "--again" not in sys.argv:
        sys.exit(f"{target.name} exists; --again replaces the files of a release that is not out")
    write(target)
