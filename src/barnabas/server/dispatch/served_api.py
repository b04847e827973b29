"""Entry of the table of APIs that a listener serves."""

from __future__ import annotations

from typing import NamedTuple


class ServedApi(NamedTuple):
    """Versions (both inclusive), and the module in `handlers` with the `handler` function."""

    first_version: int
    last_version: int
    module: str
    # Whether the active controller serves the API, to which brokers forward its requests.
    is_forwarded: bool = False
