"""Copies the committed offsets of groups from the source of a link.

Each broker does this for the groups that it coordinates, so the commits need no other broker. A
commit is never ahead of the mirror: a consumer that goes on here would miss the records between.
It has no leader epoch, because the mirror has epochs of its own. A group with members here is left
alone: the coordinator refuses the commit, as for any client that is not a member.

A promotion asks all brokers for a report (`PromotionRequest`). A round that began after a broker
has seen the request answers it. The reports name the partitions of `__consumer_offsets` that they
cover, so the promotion sees when a coordinator has moved in between.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from barnabas.client.admin.groups import list_group_offsets, list_groups
from barnabas.client.connections.versions import OFFSET_COMMIT_MAX_BY_NAME
from barnabas.client.errors import ClientError
from barnabas.coordinator.group.group_coordinator import OFFSETS_TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.replication.links.link_table import (
    COPIED_TYPES,
    GroupReport,
    MirrorState,
    report_name,
    report_value,
)
from barnabas.server.links.link_configs import alter_configs
from barnabas.server.links.name_filter import NameFilter
from barnabas.server.links.plan_runner import start_plan
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.steps import run_in_slices

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.admin.sender import Plan
    from barnabas.client.group.group_offsets import CommittedOffset
    from barnabas.client.topic_partition import TopicPartition as ClientPartition
    from barnabas.protocol.messages.committed_offsets import OffsetCommitResponse
    from barnabas.replication.links.link_table import LinkDefinition, LinkTable
    from barnabas.server.links.link_dependencies import LinkDependencies
    from barnabas.server.links.source_cluster import SourceCluster
    from barnabas.settings.pattern import Pattern

_log = logging.getLogger(__name__)

# Groups whose offsets are read from the source at once.
_GROUPS_AT_ONCE = 50
# Groups whose names a report has.
REPORTED_GROUPS_MAX = 20


class _Round:
    """One round: which partitions of `__consumer_offsets` it covers, and its progress."""

    __slots__ = ("began_ms", "coordinated", "has_failed", "link", "mirrored", "waiting")

    def __init__(self, link: LinkDefinition, mirrored: set[str], began_ms: int) -> None:
        self.link = link
        # Wall clock, ms.
        self.began_ms = began_ms
        # Topics whose offsets are copied.
        self.mirrored = mirrored
        # Partitions that this broker led when the groups had been listed.
        self.coordinated: list[int] = []
        # Number of reads and commits in progress.
        self.waiting = 0
        # Whether groups of the source could not be listed or read.
        self.has_failed = False


class GroupOffsets:
    """The rounds of one link on this broker."""

    def __init__(self, source: SourceCluster, dependencies: LinkDependencies) -> None:
        self._admin = source.admin
        self._cluster = dependencies.cluster
        self._groups = dependencies.groups
        self._latest = dependencies.latest
        self._forwarding = dependencies.forwarding
        self._clock = dependencies.runtime.clock
        self._timer = dependencies.runtime.timer
        self._node_id = dependencies.node_id
        self._filter = NameFilter()
        # The last commit of each group that was written, to skip unchanged offsets.
        self._committed: dict[str, dict[TopicPartition, int]] = {}
        # Topics with offsets at the source that are not committed here, by group.
        self._missing: dict[str, set[str]] = {}
        # Whether the groups of the source were ever read completely.
        self._is_known = False
        self.is_busy = False
        self._copies = dependencies.replicas.sources.copies

    def start_round(self, link: LinkDefinition, table: LinkTable) -> None:
        """Begin a round, unless one is in progress or the link copies no groups."""
        if self.is_busy or link.groups is None:
            return
        self.is_busy = True
        mirrored = {
            each.topic for each in table.mirrors_of(link.name) if each.state is MirrorState.ACTIVE
        }
        progress = _Round(link, mirrored, self._clock.wall_ms())
        on_listed = partial(self._on_listed, progress)
        start_plan(self._list(link.groups), self._timer, on_listed)

    def _list(self, pattern: Pattern) -> Plan[list[str]]:
        """Return the groups of the source that match."""
        listed = yield from list_groups(self._admin)
        names = [
            each.group_id
            for each in listed
            if each.type.lower() in COPIED_TYPES and each.protocol_type in ("", "consumer")
        ]
        return (yield from self._filter.select(pattern, names))

    def check_promotion(self, link: LinkDefinition) -> bool:
        """Report to a new promotion what is known: its source may be lost.

        Returns:
            Whether a promotion waits for this broker, so that rounds have to follow soon.
        """
        if link.promotion is None:
            return False
        own = link.reports.get(str(self._node_id))
        if own is None or own.token != link.promotion.token:
            self._report(link, None)
            return True
        return not own.is_complete or own.partitions != self._coordinated()

    def _on_listed(
        self, progress: _Round, listed: list[str] | None, error: ClientError | None
    ) -> None:
        if listed is None:
            _log.info(
                "Groups of a source are not known: link=%s error=%s", progress.link.name, error
            )
            self.is_busy = False
            return
        progress.coordinated = self._coordinated()
        led = set(progress.coordinated)
        names = [each for each in listed if self._groups.runtime.partition_for(each) in led]
        for known in (self._committed, self._missing):
            for gone in known.keys() - set(names):
                del known[gone]
        self._read(progress, names)

    def _coordinated(self) -> list[int]:
        """Return the partitions of `__consumer_offsets` that this broker leads, ascending."""
        topic = self._cluster.image.topics.by_name(OFFSETS_TOPIC)
        if topic is None:
            return []
        found = topic.partitions.items()
        return sorted(index for index, each in found if each.leader == self._node_id)

    def _read(self, progress: _Round, names: list[str]) -> None:
        if not names:
            self._finish(progress)
            return
        now, later = names[:_GROUPS_AT_ONCE], names[_GROUPS_AT_ONCE:]

        def on_read(
            found: dict[str, dict[ClientPartition, CommittedOffset] | ClientError] | None,
            error: ClientError | None,
        ) -> None:
            del error
            # The next groups are read when the offsets of these are committed.
            progress.waiting = 1
            progress.has_failed |= found is None
            for group, offsets in (found or {}).items():
                if isinstance(offsets, ClientError):
                    progress.has_failed = True
                else:
                    self._clamp(progress, group, offsets, later)
            self._note_done(progress, later)

        start_plan(list_group_offsets(self._admin, now), self._timer, on_read)

    def _note_done(self, progress: _Round, later: list[str]) -> None:
        progress.waiting -= 1
        if not progress.waiting:
            self._read(progress, later)

    def _finish(self, progress: _Round) -> None:
        self.is_busy = False
        if not progress.has_failed:
            self._is_known = True
            for each in progress.coordinated:
                copies = self._copies.setdefault(TopicPartition(OFFSETS_TOPIC, each), {})
                copies[progress.link.name] = progress.began_ms
        self._report(progress.link, None if progress.has_failed else progress.coordinated)

    def _report(self, link: LinkDefinition, partitions: list[int] | None) -> None:
        """Tell a promotion which offsets are missing, if it does not know yet.

        Args:
            link: the link as it was when the round began.
            partitions: the partitions whose groups were read after that; None after a failed round.
        """
        request = link.promotion
        if request is None:
            return
        missing = sorted(
            group
            for group, topics in self._missing.items()
            if not request.topics or topics & request.topics
        )
        report = GroupReport(
            request.token,
            partitions is not None and not missing,
            partitions or [],
            len(missing) if self._is_known else -1,
            missing[:REPORTED_GROUPS_MAX],
        )
        if report != link.reports.get(str(self._node_id)):
            name = report_name(link.name, self._node_id)
            alter_configs(self._forwarding, {name: report_value(report)})

    def _clamp(
        self,
        progress: _Round,
        group: str,
        offsets: dict[ClientPartition, CommittedOffset],
        later: list[str],
    ) -> None:
        """Find how far the mirrors are, then commit."""
        known = self._committed.get(group, {})
        changed = {
            TopicPartition(key.topic, key.partition): offset
            for key, offset in offsets.items()
            if key.topic in progress.mirrored
            and known.get(TopicPartition(key.topic, key.partition)) != offset.offset
        }
        if not changed:
            self._missing.pop(group, None)
            return
        self._missing[group] = {key.topic for key in changed}
        progress.waiting += 1

        def on_done() -> None:
            committed = self._committed.get(group, {})
            left = {key.topic for key in changed if committed.get(key) != changed[key].offset}
            if left:
                self._missing[group] = left
            else:
                self._missing.pop(group, None)
            self._note_done(progress, later)

        self._latest.find(list(changed), partial(self._commit, group, changed, on_done))

    def _commit(
        self,
        group: str,
        offsets: dict[TopicPartition, CommittedOffset],
        on_done: Callable[[], None],
        ends: dict[TopicPartition, int | ErrorCode],
    ) -> None:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        written: dict[TopicPartition, int] = {}
        for key, committed in offsets.items():
            end = ends[key]
            if isinstance(end, ErrorCode):
                continue
            written[key] = min(committed.offset, end)
            topics.setdefault(key.topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=key.partition,
                    committed_offset=written[key],
                    committed_metadata=committed.metadata,
                )
            )
        if not topics:
            on_done()
            return
        request = OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

        def on_committed(response: OffsetCommitResponse) -> None:
            known = self._committed.setdefault(group, {})
            for topic in response.topics:
                for each in topic.partitions:
                    key = TopicPartition(topic.name, each.partition_index)
                    if not each.error_code and key in written:
                        known[key] = written[key]
            on_done()

        steps = self._groups.offsets.commit(request, OFFSET_COMMIT_MAX_BY_NAME, on_committed)
        run_in_slices(steps, self._clock, self._timer.call_soon, lambda _: None)
