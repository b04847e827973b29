"""How many files and connections the process may have open."""

from __future__ import annotations

import logging

from barnabas.runtime import system_calls

_log = logging.getLogger(__name__)

# Fewer do not hold a few thousand connections beside the segments of a few hundred partitions.
FEW = 4096


def raise_open_files_limit() -> int | None:
    """Take all that the system gives; warn when that is little.

    Returns:
        How many files may be open now; None for no limit.
    """
    soft, reason = system_calls.raise_open_files_limit()
    if reason is not None:
        _log.debug("The hard limit of open files cannot be taken: %s", reason)
    if soft is not None and soft < FEW:
        _log.warning(
            "At most %d files and connections can be open at once; raise the limit "
            "(ulimit -Hn, or LimitNOFILE= of the service) for more partitions or clients",
            soft,
        )
    return soft
