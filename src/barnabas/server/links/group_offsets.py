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
    from barnabas.client.admin.sender import Plan
    from barnabas.client.group.group_offsets import CommittedOffset
    from barnabas.client.retries import OnDone
    from barnabas.client.topic_partition import TopicPartition as ClientPartition
    from barnabas.protocol.messages.committed_offsets import OffsetCommitResponse
    from barnabas.replication.links.link_table import LinkDefinition, LinkTable
    from barnabas.server.links.link_dependencies import LinkDependencies
    from barnabas.server.links.source_cluster import SourceCluster
    from barnabas.settings.pattern import Pattern

    # Committed offsets, and latest offsets or errors, by partition.
    _Offsets = dict[TopicPartition, CommittedOffset]
    _Ends = dict[TopicPartition, int | ErrorCode]

_log = logging.getLogger(__name__)

# Groups whose offsets are read from the source at once.
_GROUPS_AT_ONCE = 50
# Groups whose names a report has.
REPORTED_GROUPS_MAX = 20


class _Round:
    """One round: which partitions of `__consumer_offsets` it covers, and its progress."""

    __slots__ = ("began_ms", "coordinated", "has_failed", "link", "mirrored")

    def __init__(self, link: LinkDefinition, mirrored: set[str], began_ms: int) -> None:
        self.link = link
        # Wall clock, ms.
        self.began_ms = began_ms
        # Topics whose offsets are copied.
        self.mirrored = mirrored
        # Partitions that this broker led when the groups had been listed.
        self.coordinated: list[int] = []
        # Whether groups of the source could not be read.
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
        start_plan(
            self._round(progress, link.groups), self._timer, partial(self._on_done, progress)
        )

    def _round(self, progress: _Round, pattern: Pattern) -> Plan[None]:
        names = yield from self._list(pattern)
        progress.coordinated = self._coordinated()
        led = set(progress.coordinated)
        names = [each for each in names if self._groups.runtime.partition_for(each) in led]
        for known in (self._committed, self._missing):
            for gone in known.keys() - set(names):
                del known[gone]
        for start in range(0, len(names), _GROUPS_AT_ONCE):
            # The next groups are read when the offsets of these are committed.
            read = yield from list_group_offsets(
                self._admin, names[start : start + _GROUPS_AT_ONCE]
            )
            changed: dict[str, _Offsets] = {}
            for group, offsets in read.items():
                if isinstance(offsets, ClientError):
                    progress.has_failed = True
                else:
                    changed[group] = self._changed(progress, group, offsets)
            yield from self._copy({group: each for group, each in changed.items() if each})

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

    def _on_done(self, progress: _Round, _none: None, error: ClientError | None) -> None:
        self.is_busy = False
        if error is not None:
            _log.info(
                "Groups of a source are not known: link=%s error=%s", progress.link.name, error
            )
            return
        if not progress.has_failed:
            self._is_known = True
            for each in progress.coordinated:
                copies = self._copies.setdefault(TopicPartition(OFFSETS_TOPIC, each), {})
                copies[progress.link.name] = progress.began_ms
        self._report(progress.link, None if progress.has_failed else progress.coordinated)

    def _coordinated(self) -> list[int]:
        """Return the partitions of `__consumer_offsets` that this broker leads, ascending."""
        topic = self._cluster.image.topics.by_name(OFFSETS_TOPIC)
        if topic is None:
            return []
        found = topic.partitions.items()
        return sorted(index for index, each in found if each.leader == self._node_id)

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

    def _changed(
        self, progress: _Round, group: str, offsets: dict[ClientPartition, CommittedOffset]
    ) -> _Offsets:
        """Return the offsets of mirrors that are not committed here; note that they are missing."""
        known = self._committed.get(group, {})
        found = {TopicPartition(key.topic, key.partition): each for key, each in offsets.items()}
        changed = {
            key: each
            for key, each in found.items()
            if key.topic in progress.mirrored and known.get(key) != each.offset
        }
        self._note_missing(group, {key.topic for key in changed})
        return changed

    def _note_missing(self, group: str, topics: set[str]) -> None:
        if topics:
            self._missing[group] = topics
        else:
            self._missing.pop(group, None)

    def _copy(self, changed: dict[str, _Offsets]) -> Plan[None]:
        """Find how far the mirrors are, then commit the offsets of groups up to there."""
        ends = yield {
            group: partial(self._find_ends, list(offsets)) for group, offsets in changed.items()
        }
        requests: dict[str, OffsetCommitRequest] = {}
        for group, offsets in changed.items():
            known = {} if isinstance(ends[group], ClientError) else ends[group]
            clamped = _clamped(offsets, known)
            if clamped:
                requests[group] = _request(group, clamped)
        responses = yield {group: partial(self._commit, each) for group, each in requests.items()}
        for group, response in responses.items():
            if isinstance(response, ClientError):
                continue
            self._note_committed(requests[group], response)
            committed, offsets = self._committed.get(group, {}), changed[group]
            left = {key.topic for key, each in offsets.items() if committed.get(key) != each.offset}
            self._note_missing(group, left)

    def _find_ends(self, partitions: list[TopicPartition], on_done: OnDone[_Ends]) -> None:
        self._latest.find(partitions, lambda found: on_done(found, None))

    def _commit(self, request: OffsetCommitRequest, on_done: OnDone[OffsetCommitResponse]) -> None:
        steps = self._groups.offsets.commit(
            request, OFFSET_COMMIT_MAX_BY_NAME, lambda response: on_done(response, None)
        )
        run_in_slices(steps, self._clock, self._timer.call_soon, lambda _: None)

    def _note_committed(self, request: OffsetCommitRequest, response: OffsetCommitResponse) -> None:
        """Note the offsets of a commit whose partitions have no error."""
        written = {
            TopicPartition(topic.name, each.partition_index): each.committed_offset
            for topic in request.topics
            for each in topic.partitions
        }
        known = self._committed.setdefault(request.group_id, {})
        for topic in response.topics:
            for each in topic.partitions:
                key = TopicPartition(topic.name, each.partition_index)
                if not each.error_code and key in written:
                    known[key] = written[key]


def _clamped(offsets: _Offsets, ends: _Ends) -> _Offsets:
    """Return the offsets, none of them ahead of its mirror; without mirrors of unknown ends."""
    found: _Offsets = {}
    for key, committed in offsets.items():
        end = ends.get(key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not isinstance(end, ErrorCode):
            found[key] = committed._replace(offset=min(committed.offset, end))
    return found


def _request(group: str, offsets: _Offsets) -> OffsetCommitRequest:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for key, committed in offsets.items():
        topics.setdefault(key.topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=key.partition,
                committed_offset=committed.offset,
                committed_metadata=committed.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )
