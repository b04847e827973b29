"""Copies the committed offsets of groups from the source of a link.

Each broker does this for the groups that it coordinates, so the commits need no other broker. A
commit is never ahead of the mirror: a consumer that goes on here would miss the records between.
It has no leader epoch, because the mirror has epochs of its own. A group with members here is left
alone: the coordinator refuses the commit, as for any client that is not a member.
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
from barnabas.replication.links.link_table import MirrorState
from barnabas.server.links.plan_runner import start_plan
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.steps import run_in_slices

if TYPE_CHECKING:
    from barnabas.client.admin.groups import GroupListing
    from barnabas.client.group.group_offsets import CommittedOffset
    from barnabas.client.topic_partition import TopicPartition as ClientPartition
    from barnabas.protocol.messages.committed_offsets import OffsetCommitResponse
    from barnabas.replication.links.link_table import LinkDefinition, LinkTable
    from barnabas.server.links.link_dependencies import LinkDependencies
    from barnabas.server.links.source_cluster import SourceCluster

_log = logging.getLogger(__name__)

# Groups whose offsets are read from the source at once.
_GROUPS_AT_ONCE = 50
# Types of groups with offsets in `__consumer_offsets`. Sources before 3.8 report no types.
_TYPES = ("", "classic", "consumer")


class GroupOffsets:
    """The rounds of one link on this broker."""

    def __init__(self, source: SourceCluster, dependencies: LinkDependencies) -> None:
        self._admin = source.admin
        self._cluster = dependencies.cluster
        self._groups = dependencies.groups
        self._latest = dependencies.latest
        self._clock = dependencies.runtime.clock
        self._timer = dependencies.runtime.timer
        self._node_id = dependencies.node_id
        # The last commit of each group that was written, to skip unchanged offsets.
        self._committed: dict[str, dict[TopicPartition, int]] = {}
        self.is_busy = False
        self._copies = dependencies.replicas.group_copies
        # Of the round in progress: the wall clock (ms) at its begin, the state partitions of its
        # groups, and whether offsets could not be read.
        self._began_ms = 0
        self._partitions: set[int] = set()
        self._has_failed = False

    def start_round(self, link: LinkDefinition, table: LinkTable) -> None:
        """Begin a round, unless one is in progress or the link copies no groups."""
        if self.is_busy or link.groups is None:
            return
        self.is_busy = True
        self._began_ms = self._clock.wall_ms()
        self._has_failed = False
        mirrored = {
            each.topic for each in table.mirrors_of(link.name) if each.state is MirrorState.ACTIVE
        }
        on_listed = partial(self._on_listed, link, mirrored)
        start_plan(list_groups(self._admin), self._timer, on_listed)

    def _on_listed(
        self,
        link: LinkDefinition,
        mirrored: set[str],
        listed: list[GroupListing] | None,
        error: ClientError | None,
    ) -> None:
        assert link.groups is not None
        if listed is None:
            _log.info("Groups of a source are not known: link=%s error=%s", link.name, error)
            self.is_busy = False
            return
        names = [
            each.group_id
            for each in listed
            if each.type.lower() in _TYPES
            and each.protocol_type in ("", "consumer")
            and link.groups.matches(each.group_id)
            and self._is_coordinator(each.group_id)
        ]
        for gone in self._committed.keys() - set(names):
            del self._committed[gone]
        partitions = map(self._groups.runtime.partition_for, names)
        self._partitions = {each for each in partitions if each is not None}
        self._read(link.name, names, mirrored)

    def _is_coordinator(self, group: str) -> bool:
        partition = self._groups.runtime.partition_for(group)
        if partition is None:
            return False
        found = self._cluster.image.topics.partition(OFFSETS_TOPIC, partition)
        return found is not None and found.leader == self._node_id

    def _read(self, link: str, names: list[str], mirrored: set[str]) -> None:
        if not names:
            self.is_busy = False
            if not self._has_failed:
                for each in self._partitions:
                    key = TopicPartition(OFFSETS_TOPIC, each)
                    self._copies.setdefault(key, {})[link] = self._began_ms
            return
        now, later = names[:_GROUPS_AT_ONCE], names[_GROUPS_AT_ONCE:]

        def on_read(
            found: dict[str, dict[ClientPartition, CommittedOffset] | ClientError] | None,
            error: ClientError | None,
        ) -> None:
            self._has_failed |= error is not None
            for group, offsets in (found or {}).items():
                if isinstance(offsets, ClientError):
                    self._has_failed = True
                else:
                    self._clamp(group, offsets, mirrored)
            self._read(link, later, mirrored)

        start_plan(list_group_offsets(self._admin, now), self._timer, on_read)

    def _clamp(
        self, group: str, offsets: dict[ClientPartition, CommittedOffset], mirrored: set[str]
    ) -> None:
        """Find how far the mirrors are, then commit."""
        known = self._committed.get(group, {})
        changed = {
            TopicPartition(key.topic, key.partition): offset
            for key, offset in offsets.items()
            if key.topic in mirrored
            and known.get(TopicPartition(key.topic, key.partition)) != offset.offset
        }
        if changed:
            self._latest.find(list(changed), partial(self._commit, group, changed))

    def _commit(
        self,
        group: str,
        offsets: dict[TopicPartition, CommittedOffset],
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
            return
        request = OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

        def on_done(response: OffsetCommitResponse) -> None:
            known = self._committed.setdefault(group, {})
            for topic in response.topics:
                for each in topic.partitions:
                    key = TopicPartition(topic.name, each.partition_index)
                    if not each.error_code and key in written:
                        known[key] = written[key]

        steps = self._groups.offsets.commit(request, OFFSET_COMMIT_MAX_BY_NAME, on_done)
        run_in_slices(steps, self._clock, self._timer.call_soon, lambda _: None)
