"""The limit for open files and connections of the process."""

from __future__ import annotations

import logging

from barnabas.runtime import system_calls

_log = logging.getLogger(__name__)

# A smaller limit is too low for thousands of connections and hundreds of partitions.
FEW = 4096
# A node does not start with a smaller limit. It uses about 40 files itself, with its reserve. The
# others are for connections of clients and other nodes, and for logs.
NEEDED = 128
_REMEDY = "raise the limit (ulimit -Hn, or LimitNOFILE= of the service)"


class OpenFilesError(Exception):
    """The limit of open files is too low for a node."""


def raise_open_files_limit() -> int | None:
    """Raise the limit to the hard limit; warn if that is low.

    Returns:
        The number of files that may be open; None for no limit.

    Raises:
        OpenFilesError: the limit is too low for a node.
    """
    soft, reason = system_calls.raise_open_files_limit()
    if reason is not None:
        _log.debug("The limit of open files could not be raised to the hard limit: %s", reason)
    if soft is not None and soft < NEEDED:
        raise OpenFilesError(
            f"at most {soft} files and connections can be open at once, and a node needs at least "
            f"{NEEDED}: {_REMEDY}"
        )
    if soft is not None and soft < FEW:
        _log.warning(
            "At most %d files and connections can be open at once; %s for more partitions or "
            "clients",
            soft,
            _REMEDY,
        )
    return soft
