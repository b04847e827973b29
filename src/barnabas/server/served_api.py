"""An API as a listener serves it."""

from __future__ import annotations

from typing import NamedTuple


class ServedApi(NamedTuple):
    """Versions, both inclusive, and the module in `handlers` whose `handler(parts)` serves."""

    first_version: int
    last_version: int
    module: str
