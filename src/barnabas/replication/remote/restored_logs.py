"""Leaders of a topic that `barnabas remote restore` makes from the store of a lost cluster.

The command copies the segments to the names of the new topic and writes their events, while the
topic has `barnabas.remote.restore=copying` and its logs are empty. Then it sets `adopting`. Each
leader now starts its log behind the last segment, as a follower does whose leader has the earlier
records in the tier only. The followers do the same by their next fetch.

A log that ever had a record never adopts segments, and neither does a topic without this config.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from barnabas.replication.remote.segment_end import read_state
from barnabas.storage.config import RESTORE_ADOPTING
from barnabas.storage.errors import StorageError
from barnabas.storage.remote.coverage import Coverage
from barnabas.storage.remote.remote_storage import SegmentState

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.remote.segment_end import AuxiliaryState
    from barnabas.replication.remote.tier_dependencies import Leadership, TierDependencies
    from barnabas.storage.log.log import Log
    from barnabas.storage.topic_partition import TopicPartition

    # Empties a log and starts it anew.
    RestartLog = Callable[[TopicPartition, Callable[[Log], None]], None]

_log = logging.getLogger(__name__)


class RestoredLogs:
    """Adopts the segments of restored topics. All calls are made on the loop."""

    __slots__ = ("_on_adopted", "_reading", "_restart", "_tier")

    def __init__(
        self,
        tier: TierDependencies,
        restart: RestartLog,
        on_adopted: Callable[[TopicPartition], None],
    ) -> None:
        """Create without partitions.

        Args:
            tier: the parts of the tier.
            restart: empties a log of this broker and starts it anew.
            on_adopted: called with a partition whose log has started behind its segments.
        """
        self._tier = tier
        self._restart = restart
        self._on_adopted = on_adopted
        # The partitions whose last segment is being read.
        self._reading: set[TopicPartition] = set()

    def check(self, leadership: Leadership) -> None:
        """Start the log of a leader behind its segments, if its topic demands it now."""
        where = leadership.where
        if where.topic_partition in self._reading or not _must_adopt(leadership):
            return
        remote = self._tier.metadata.log_of(where)
        if remote is None:
            self._tier.metadata.on_ready(where, partial(self.check, leadership))
            return
        finished = [
            each for each in remote.iterate() if each.state is SegmentState.COPY_SEGMENT_FINISHED
        ]
        if not finished:
            return
        finished.sort(key=lambda each: each.start_offset)
        coverage = Coverage()
        gap = next(filter(None, map(coverage.add, finished)), None)
        if gap is not None:
            _log.error(
                "Segments are not adopted, no segment has the records between them: partition=%s "
                "first_offset=%d end_offset=%d",
                where.topic_partition,
                gap.first,
                gap.last + 1,
            )
            return
        first, last = finished[0], max(finished, key=lambda each: each.end_offset)
        ticket = self._tier.deletes.submit(
            partial(read_state, self._tier.storage, last),
            partial(self._on_read, leadership, first.start_offset),
        )
        if ticket is not None:
            self._reading.add(where.topic_partition)

    def _on_read(
        self,
        leadership: Leadership,
        log_start_offset: int,
        state: AuxiliaryState | None,
        error: BaseException | None,
    ) -> None:
        key = leadership.where.topic_partition
        self._reading.discard(key)
        if not _must_adopt(leadership):
            return
        if state is None:
            # The sweep tries again.
            _log.warning("Segments are not adopted yet: partition=%s error=%s", key, error)
            return
        role = leadership.partition.leader
        assert role is not None, key
        try:
            self._restart(
                key,
                lambda log: log.adopt_auxiliary_state(
                    state.offset, log_start_offset, state.epochs, state.producer_snapshot
                ),
            )
        except StorageError as failure:
            _log.warning("Segments are not adopted yet: partition=%s error=%s", key, failure)
            return
        role.on_adopted()
        _log.info(
            "Log starts behind restored segments: partition=%s log_start=%d log_end_offset=%d",
            key,
            log_start_offset,
            state.offset,
        )
        self._on_adopted(key)


def _must_adopt(leadership: Leadership) -> bool:
    """Return whether this broker leads an empty log that must start behind its segments."""
    if not leadership.holds:
        return False
    log = leadership.partition.log
    return (
        log.config.barnabas_remote_restore == RESTORE_ADOPTING
        and log.log_start_offset == 0
        and log.log_end_offset == 0
    )
