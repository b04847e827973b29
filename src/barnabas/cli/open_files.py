"""How many files and connections the process may have open."""

from __future__ import annotations

import logging
import resource

_log = logging.getLogger(__name__)

# Fewer do not hold a few thousand connections beside the segments of a few hundred partitions.
FEW = 4096


def raise_open_files_limit() -> int:
    """Take all that the hard limit allows; warns when that is little. Returns what there is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError) as error:
            _log.debug("The limit of open files stays at %d: %s", soft, error)
    if soft != resource.RLIM_INFINITY and soft < FEW:
        _log.warning(
            "At most %d files and connections can be open at once; raise the limit "
            "(ulimit -Hn, or LimitNOFILE= of the service) for more partitions or clients",
            soft,
        )
    return soft
