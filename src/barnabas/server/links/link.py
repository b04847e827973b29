"""One link on a broker: its client, its fetchers, and the rounds for topics and group offsets."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.coordinator.group.group_coordinator import OFFSETS_TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.replication.config import UNLIMITED, FetcherSettings
from barnabas.replication.fetcher.fetch_states import FailedPartitions
from barnabas.replication.fetcher.replica_fetcher import FetcherDependencies
from barnabas.replication.links.link_fetchers import LinkFetchers
from barnabas.replication.links.link_table import LinkTable, MirrorState, TruncationPolicy
from barnabas.replication.replication_throttle import ReplicationThrottle
from barnabas.server.links.group_offsets import GroupOffsets
from barnabas.server.links.mirror_acls import MirrorAcls
from barnabas.server.links.mirror_topics import MirrorTopics
from barnabas.server.links.source_cluster import SourceCluster
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from barnabas.replication.links.link_table import LinkDefinition, MirrorTopic
    from barnabas.replication.links.mirror_replicas import SourcePlace
    from barnabas.replication.partition.partition import Partition
    from barnabas.server.links.link_dependencies import LinkDependencies

_log = logging.getLogger(__name__)

# Interval of the search for mirrors that this broker leads. Changes of the metadata begin it at
# once, but not the failure of a disk.
_LEAD_MS = 5_000.0
# Interval of the copies of access control entries.
_ACLS_MS = 5_000.0
# Partitions whose fetching has failed are tried again after this time.
_RETRY_FAILED_MS = 10_000.0


class Link:
    """One link on this broker."""

    def __init__(self, definition: LinkDefinition, dependencies: LinkDependencies) -> None:
        """Create the link. Nothing is connected yet.

        Raises:
            ClientConfigError: the connection to the source is not configured correctly.
        """
        self.definition = definition
        self._dependencies = dependencies
        runtime, replicas = dependencies.runtime, dependencies.replicas
        self._clock = runtime.clock
        self.source = SourceCluster(runtime, definition.name, definition.client)
        self.source.cluster.on_update(self._follow)
        self._throttle = ReplicationThrottle(
            runtime.clock,
            dependencies.config.replication_quota_window_num,
            dependencies.config.replication_quota_window_size_seconds * 1000.0,
        )
        local = replicas.mirror_replicas(self._throttle)
        settings = FetcherSettings(
            -1, lambda: -1, lambda: self.source.fetch_version, dependencies.config
        )
        self.fetchers = LinkFetchers(
            definition.name,
            self.source,
            local,
            FetcherDependencies(
                local, settings, FailedPartitions(), dependencies.wheel, runtime.clock
            ),
        )
        self._topics = MirrorTopics(
            self.source,
            dependencies.cluster,
            dependencies.forwarding,
            runtime.timer,
            dependencies.cluster_id,
        )
        self._groups = GroupOffsets(self.source, dependencies)
        self._acls = MirrorAcls(self.source, dependencies)
        # Whether the state of links has changed, so that topics may have to be created.
        self.has_new_table = True
        # Whether mirrors or their leaders may have changed since the last check.
        self.has_new_leaders = True
        # Times (ms, monotonic) of the next rounds.
        self._topics_due_ms = self._groups_due_ms = self._acls_due_ms = float("-inf")
        self._lead_due_ms = self._retry_due_ms = float("-inf")
        # The active mirror topics of the link, as of the last search for led mirrors.
        self._active: dict[str, MirrorTopic] = {}
        # The unexpected id of the source cluster that was logged.
        self._logged_cluster_id = ""

    def close(self) -> None:
        """Stop fetching, and close the connections."""
        self._mirror(())
        for copies in self._dependencies.replicas.sources.copies.values():
            copies.pop(self.definition.name, None)
        self.fetchers.close()
        self.source.close()

    def stop_mirrors(self, topics: Container[str]) -> None:
        """Stop fetching the mirrors of these topics at once."""
        mirrors = self.fetchers.mirrors
        self._mirror([each.partition for key, each in mirrors.items() if key.topic not in topics])

    def check(self, table: LinkTable, *, manages_topics: bool) -> None:
        """Do what is due: start and stop mirrors, find moved leaders, begin rounds."""
        is_active = not self.definition.is_paused
        self._topics.table = table
        now_ms = self._clock.monotonic_ms()
        if self.has_new_leaders or now_ms >= self._lead_due_ms:
            self.has_new_leaders = False
            self._lead_due_ms = now_ms + _LEAD_MS
            mirrors = table.mirrors_of(self.definition.name) if is_active else ()
            self._active = {
                each.topic: each for each in mirrors if each.state is MirrorState.ACTIVE
            }
            self._mirror(self._led())
        limit = self.definition.bytes_per_second
        self._throttle.bytes_per_second = UNLIMITED if limit is None else limit
        self.fetchers.follow_truncation(self.definition.on_truncation is TruncationPolicy.FOLLOW)
        self.fetchers.note_responses()
        for key, mirror in self.fetchers.mirrors.items():
            if mirror.problem and key.topic in self._active:
                reason = f"partition {key.partition}: {mirror.problem}"
                self._topics.stop(self._active[key.topic], reason)
        if not is_active:
            return
        if not self.source.has_versions:
            self.source.learn_versions()
        if now_ms >= self._retry_due_ms:
            self._retry_due_ms = now_ms + _RETRY_FAILED_MS
            self.fetchers.retry_failed()
        self._update_metadata()
        if self._is_other_cluster():
            return
        if manages_topics and (self.has_new_table or now_ms >= self._topics_due_ms):
            self.has_new_table = self._topics.is_busy
            self._topics_due_ms = now_ms + self._topics.interval_ms
            self._topics.start_round(self.definition)
        if manages_topics and self.definition.copies_acls and now_ms >= self._acls_due_ms:
            self._acls_due_ms = now_ms + _ACLS_MS
            self._acls.start_round(self.definition, table)
        has_promotion = self._groups.check_promotion(self.definition)
        if self.definition.groups is not None and (has_promotion or now_ms >= self._groups_due_ms):
            self._groups_due_ms = now_ms + self.definition.group_sync_ms
            self._start_groups(table)
        self._follow()

    def _led(self) -> Iterator[Partition]:
        """Yield the partitions of active mirror topics that this broker leads."""
        replicas = self._dependencies.replicas
        image = self._dependencies.cluster.image
        for name in self._active:
            topic = image.topics.by_name(name)
            for index in () if topic is None else topic.partitions:
                partition = replicas.partition(TopicPartition(name, index))
                if not isinstance(partition, ErrorCode) and partition.leader is not None:
                    yield partition

    def _mirror(self, partitions: Iterable[Partition]) -> None:
        """Mirror these partitions, and no others."""
        known, mirrors = self._dependencies.replicas.sources.mirrors, self.fetchers.mirrors
        for key in mirrors:
            known.pop(key, None)
        self.fetchers.lead(partitions)
        known.update(mirrors)

    def _update_metadata(self) -> None:
        cluster = self.source.cluster
        led = {key.topic for key in self.fetchers.mirrors}
        if led != cluster.tracked:
            cluster.tracked.clear()
            cluster.tracked.update(led)
            cluster.request_update()
        elif self.fetchers.has_errors or any(
            each.place is None for each in self.fetchers.mirrors.values()
        ):
            cluster.request_update()
        else:
            cluster.maybe_update_by_age()

    def _start_groups(self, table: LinkTable) -> None:
        image = self._dependencies.cluster.image
        if image.topics.by_name(OFFSETS_TOPIC) is None:
            self._dependencies.auto_topics.create([OFFSETS_TOPIC])
        else:
            self._groups.start_round(self.definition, table)

    def _follow(self) -> None:
        """Fetch from the current leaders, if the source is the cluster that it was."""
        if self.source.has_versions and not self._is_other_cluster():
            self.fetchers.follow(self._place)

    def _is_other_cluster(self) -> bool:
        """Whether the source is this cluster, or another one than at the link's creation."""
        found, expected = self.source.cluster.metadata.cluster_id, self.definition.source_cluster_id
        own = self._dependencies.cluster_id
        if found is None or (found != own and expected in ("", found)):
            return False
        if self._logged_cluster_id != found:
            self._logged_cluster_id = found
            _log.error(
                "Link does nothing, its source is this cluster or not the cluster that it was: "
                "link=%s source_cluster_id=%s expected=%s own=%s",
                *(self.definition.name, found, expected, own),
            )
        return True

    def _place(self, key: TopicPartition) -> SourcePlace | None:
        """Return where a mirror is fetched from; None if its source is another topic than before.

        Then the mirror is stopped by the broker that manages topics.
        """
        place, mirror = self.source.place(key), self._active.get(key.topic)
        if place is None or mirror is None or not mirror.may_copy(place.topic_id):
            return None
        return place
