"""Entry of the table of APIs that a listener serves."""

from __future__ import annotations

from typing import NamedTuple


class ServedApi(NamedTuple):
    """Versions (both inclusive), and where in `handlers` the handler of an API is made."""

    first_version: int
    last_version: int
    module: str
    # Function of the module that gets the dependencies of the node and returns the handler.
    function: str = "handler"
    # Whether the active controller serves the API, to which brokers forward its requests.
    is_forwarded: bool = False
