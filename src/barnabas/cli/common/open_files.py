"""The limit for open files and connections of the process."""

from __future__ import annotations

import logging

from barnabas.runtime.system import system_calls

_log = logging.getLogger(__name__)

# A smaller limit is too low for thousands of connections and hundreds of partitions.
FEW = 4096


def raise_open_files_limit() -> int | None:
    """Raise the limit to the hard limit; warn if that is low.

    Returns:
        The number of files that may be open; None for no limit.
    """
    soft, reason = system_calls.raise_open_files_limit()
    if reason is not None:
        _log.debug("The limit of open files could not be raised to the hard limit: %s", reason)
    if soft is not None and soft < FEW:
        _log.warning(
            "At most %d files and connections can be open at once; raise the limit "
            "(ulimit -Hn, or LimitNOFILE= of the service) for more partitions or clients",
            soft,
        )
    return soft
