"""Messages and records as a release has written them, and the versions that its nodes advertised.

There is a message of each class of requests, responses and records, in each of its versions, with
values in all fields. `python -m conformance.kept_messages` (in tests/) writes those of this
version. It is done once for each release, and the files of earlier releases stay.
"""

from __future__ import annotations

import json
import lzma
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.protocol.api_table import API_ROWS
from barnabas.protocol.codec import encode_bytes
from barnabas.protocol.schema import Struct
from barnabas.server.dispatch.served_apis import CONTROLLER_APIS, SERVED_APIS
from barnabas.server.startup.features import SUPPORTED_FEATURES
from barnabas.version import __version__
from unit.protocol.protocol_values import messages

FOLDER = Path(__file__).parent / "kept"
_SUFFIX = "-messages.json.xz"
_SEED = 1


class KeptMessage(NamedTuple):
    """One message of a release."""

    name: str
    version: int
    encoded: bytes
    # The fields of this version, with bytes as hexadecimal text.
    values: dict[str, Any]


class KeptMessages(NamedTuple):
    """What one release wrote and advertised."""

    release: str
    messages: list[KeptMessage]
    # First and last version by listener ("broker", "controller") and API.
    advertised: dict[str, dict[str, list[int]]]
    # Lowest and highest supported level by feature.
    features: dict[str, list[int]]


def kept_messages() -> list[KeptMessages]:
    """Return the messages of all releases."""
    found = []
    for path in sorted(FOLDER.glob(f"*{_SUFFIX}")):
        kept = json.loads(lzma.decompress(path.read_bytes()))
        each = [
            KeptMessage(name, version, bytes.fromhex(encoded), values)
            for name, version, encoded, values in kept["messages"]
        ]
        release = path.name.removesuffix(_SUFFIX)
        found.append(KeptMessages(release, each, kept["advertised"], kept["features"]))
    return found


def described(message: Struct, version: int) -> dict[str, Any]:
    """Return the fields of a version as JSON has them."""
    return {
        each.name: _plain(getattr(message, each.name), version)
        for each in type(message).__fields__
        if each.is_in(version)
    }


def _plain(value: object, version: int) -> object:
    if isinstance(value, Struct):
        return described(value, version)
    if isinstance(value, list):
        return [_plain(each, version) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return value.hex()
    return value


def advertised() -> dict[str, dict[str, list[int]]]:
    """Return the versions that a broker and a controller of this version serve."""

    def ranges(apis: Mapping[int, Any]) -> dict[str, list[int]]:
        return {
            API_ROWS[key].name: [api.first_version, api.last_version] for key, api in apis.items()
        }

    return {"broker": ranges(SERVED_APIS), "controller": ranges(CONTROLLER_APIS)}


def write(path: Path) -> None:
    """Write the messages of this version."""
    rows = [
        (cls.__name__, version, encode_bytes(message, version).hex(), described(message, version))
        for cls, version, message in messages(_SEED, count=1)
    ]
    features = {name: list(levels) for name, levels in SUPPORTED_FEATURES.items()}
    kept = {"messages": rows, "advertised": advertised(), "features": features}
    path.write_bytes(lzma.compress(json.dumps(kept).encode(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    target = FOLDER / f"{__version__}{_SUFFIX}"
    if target.exists() and "--again" not in sys.argv:
        sys.exit(f"{target.name} exists; --again replaces the files of a release that is not out")
    write(target)
