"""Entry of the table of APIs that a listener serves."""

from __future__ import annotations

from typing import NamedTuple


class ServedApi(NamedTuple):
    """Versions of an API (both inclusive), and the module in `handlers` with its handler."""

    first_version: int
    last_version: int
    module: str
    # Function of the module that creates the handler. Its argument is the node's dependencies.
    function: str = "handler"
    # Whether brokers forward requests for the API to the active controller.
    is_forwarded: bool = False
