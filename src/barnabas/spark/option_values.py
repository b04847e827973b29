"""Values of options that sources and sinks share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from barnabas.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SCHEME = "file:"


def absolute_address(address: str) -> str:
    """Return a local directory as an absolute path, and other addresses unchanged.

    `file:///data/flights`, `file:/data/flights` and `/data/flights` are the same directory, as in
    Spark. Percent signs have no meaning there.

    Raises:
        OptionError: a URL of scheme file has a host, or its path is relative.
    """
    path = address
    if address.lower().startswith(_SCHEME):
        path = address[len(_SCHEME) :]
        if path.startswith("//"):
            host, slash, rest = path[2:].partition("/")
            if host not in {"", "localhost"}:
                raise OptionError(
                    f"{address} names the host {host}: write file:///{host}/{rest} for the local"
                    f" directory /{host}/{rest}"
                )
            path = slash + rest
        if not path.startswith("/"):
            raise OptionError(f"{address} is a relative path: write file:///directory")
    if "://" in path:
        return path
    # Workers may have another working directory.
    return os.path.abspath(path)  # noqa: PTH100 - keeps links


def parse_switch(name: str, text: str) -> bool:
    """Return the value of an option that is true or false.

    Raises:
        OptionError: the text is neither.
    """
    if text.lower() not in {"true", "false"}:
        raise OptionError(f"{name}={text!r} is neither true nor false")
    return text.lower() == "true"


def other_partitions(table: str, found: Sequence[str], wanted: Sequence[str]) -> str:
    """Return the message for a table that is not partitioned as the option partitionColumns says.

    Args:
        table: name or address of the table.
        found: what the table is partitioned by.
        wanted: the terms of the option.
    """
    now, terms = ", ".join(found), ", ".join(wanted)
    described = f"is partitioned by ({now})" if found else "has no partitions"
    advice = f"leave it out, or set it to {now}" if found else "leave it out"
    return (
        f"{table} {described}, and the option partitionColumns is ({terms}): {advice}. Nothing was"
        " written. The partitions of a table stay, also when its rows or columns are replaced; for"
        " others, write a new table"
    )
