"""Waits until mirrors have all records of their source, before they are promoted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from barnabas.cli.common.output import fail
from barnabas.cli.common.printable import counted, echo
from barnabas.cli.links.mirrors import find_lags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.cli.links.mirrors import PartitionLag
    from barnabas.client.facade import Client
    from barnabas.replication.links.link_table import LinkDefinition, MirrorTopic

_POLL_S = 0.2
# A source without a response for this time is not reachable.
_SILENCE_S = 30.0
# Added to two intervals of the copies of group offsets, for the copy itself.
_GROUPS_EXTRA_S = 2.0


def await_no_lag(client: Client, link: LinkDefinition, mirrors: Sequence[MirrorTopic]) -> None:
    """Wait until each partition has all records, by a response of the source from now on.

    Then wait until a later round has copied the group offsets. Fails if the source does not
    respond.
    """
    first: dict[tuple[str, int], int] = {}
    heard: dict[tuple[str, int], float] = {}
    reported = ""
    while True:
        lags = find_lags(client, mirrors)
        now = time.monotonic()
        open_ones = [each for each in lags if not _is_done(each, first, heard, now)]
        known = {each.topic for each in lags}
        missing = [each.topic for each in mirrors if each.topic not in known]
        if not open_ones and not missing:
            break
        silent = [
            each for each in open_ones if now - heard[each.topic, each.partition] > _SILENCE_S
        ]
        if silent or (missing and not lags):
            where = missing[0] if not silent else f"{silent[0].topic}-{silent[0].partition}"
            fail(
                f"the source does not respond for {where}: find the reason by "
                f"`barnabas links describe {link.name}`, or promote with --force what is here"
            )
        text = f"waiting for {counted(len(open_ones), 'partition')}"
        if text != reported:
            reported = text
            echo(text, err=True)
        time.sleep(_POLL_S)
    if link.groups is not None:
        time.sleep(2 * link.group_sync_ms / 1000 + _GROUPS_EXTRA_S)


def _is_done(
    lag: PartitionLag,
    first: dict[tuple[str, int], int],
    heard: dict[tuple[str, int], float],
    now: float,
) -> bool:
    """Whether a response after the first look shows that no record is missing."""
    key = lag.topic, lag.partition
    responded_ms = -1 if lag.responded_ms is None else lag.responded_ms
    if key not in first:
        first[key] = responded_ms
        heard[key] = now
        return False
    if responded_ms <= first[key]:
        return False
    if lag.lag == 0:
        return True
    heard[key] = now
    return False
