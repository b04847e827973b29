"""Values of options that sources and sinks share."""

from __future__ import annotations

import os

from barnabas.spark.errors import OptionError

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
