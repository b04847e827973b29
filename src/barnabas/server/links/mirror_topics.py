"""Keeps the mirror topics of a link like the topics of its source.

One broker of the cluster does this for all links: the live broker with the lowest id. If two
brokers do it for a moment, the controller refuses what the other has done already.

A round: list the topics of the source; write new mirrors to the metadata; create topics and
partitions that are missing; copy changed configs; stop the mirrors whose source was recreated.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.client.admin.configs import describe_configs
from barnabas.metadata.configs_image import TOPIC
from barnabas.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
)
from barnabas.protocol.resources import ConfigResource, ResourceType
from barnabas.replication.links.link_table import (
    SOURCE_CLUSTER_ID,
    MirrorState,
    MirrorTopic,
    setting_name,
)
from barnabas.server.links.link_configs import alter_configs, log_refusals
from barnabas.server.links.plan_runner import start_plan
from barnabas.settings.key import ConfigError
from barnabas.storage.config import TOPIC_CONFIGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.client.admin.configs import ConfigEntry
    from barnabas.client.connections.metadata_cache import TopicInfo
    from barnabas.client.errors import ClientError
    from barnabas.metadata.image import ClusterImage
    from barnabas.replication.links.link_table import LinkDefinition, LinkTable
    from barnabas.runtime.clock import Timer
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.controller_access.controller_access import ControllerAccess
    from barnabas.server.links.source_cluster import SourceCluster

_log = logging.getLogger(__name__)

_TIMEOUT_MS = 30_000
# Limits of one request to the controller, and of one to the source.
_MIRRORS_AT_ONCE = 200
_TOPICS_AT_ONCE = 50
# Configs that belong to the brokers of one cluster.
_NOT_COPIED = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "remote.storage.enable",
    }
)


class MirrorTopics:
    """The rounds of one link."""

    def __init__(
        self,
        source: SourceCluster,
        cluster: ClusterView,
        forwarding: ControllerAccess,
        timer: Timer,
    ) -> None:
        self._source = source
        self._cluster = cluster
        self._forwarding = forwarding
        self._timer = timer
        # Whether a round is in progress.
        self.is_busy = False
        # Index of the first mirror whose configs the next round reads.
        self._next_mirror = 0
        # Topics that exist here and are not mirrors. Each is logged once.
        self._conflicts: set[str] = set()

    def start_round(self, link: LinkDefinition, table: LinkTable) -> None:
        """Begin a round, unless one is in progress."""
        if self.is_busy:
            return
        self.is_busy = True

        def on_listed(_none: None, error: ClientError | None) -> None:
            self.is_busy = False
            if error is None:
                self._on_listed(link, table)

        self._source.cluster.refresh(None, on_listed)

    def _on_listed(self, link: LinkDefinition, table: LinkTable) -> None:
        metadata = self._source.cluster.metadata
        if metadata.cluster_id and not link.source_cluster_id:
            alter_configs(
                self._forwarding, {setting_name(link.name, SOURCE_CLUSTER_ID): metadata.cluster_id}
            )
        topics = {
            name: topic
            for name, topic in metadata.topics.items()
            if link.topics is not None and not topic.is_internal and link.topics.matches(name)
        }
        self._write_mirrors(link, table, topics)
        known = [each for each in table.mirrors_of(link.name) if each.topic in metadata.topics]
        self._stop_recreated(known)
        active = [each.topic for each in known if each.state is MirrorState.ACTIVE]
        image = self._cluster.image
        missing = [name for name in active if image.topics.by_name(name) is None]
        self._add_partitions(image, active)
        # Each round reads the configs of the next mirrors.
        start = self._next_mirror if self._next_mirror < len(active) else 0
        self._next_mirror = start + _MIRRORS_AT_ONCE
        self._copy_configs(active[start : self._next_mirror], missing[:_TOPICS_AT_ONCE])

    def _write_mirrors(
        self, link: LinkDefinition, table: LinkTable, topics: Mapping[str, TopicInfo]
    ) -> None:
        """Make topics of the source mirrors, before they are created."""
        new: dict[str, str | None] = {}
        for name, topic in topics.items():
            if name in table.mirrors:
                continue
            if self._cluster.image.topics.by_name(name) is not None:
                if name not in self._conflicts:
                    self._conflicts.add(name)
                    _log.warning(
                        "Topic is not mirrored, it exists: link=%s topic=%s", link.name, name
                    )
                continue
            mirror = MirrorTopic(link.name, name, MirrorState.ACTIVE, topic.topic_id)
            new[mirror.config_name] = mirror.config_value
            if len(new) == _MIRRORS_AT_ONCE:
                break
        alter_configs(self._forwarding, new)

    def _stop_recreated(self, mirrors: Iterable[MirrorTopic]) -> None:
        """Stop mirrors whose source was deleted and created again: its log is another one."""
        topics = self._source.cluster.metadata.topics
        for mirror in mirrors:
            source_id = topics[mirror.topic].topic_id
            if mirror.state is MirrorState.ACTIVE and not mirror.may_copy(source_id):
                self.stop(mirror, "the topic was deleted and created again in the source cluster")

    def stop(self, mirror: MirrorTopic, reason: str) -> None:
        """Write to the metadata that a mirror stops."""
        _log.error("Mirror stopped: link=%s topic=%s reason=%s", mirror.link, mirror.topic, reason)
        stopped = MirrorTopic(
            mirror.link, mirror.topic, MirrorState.STOPPED, mirror.source_id, reason
        )
        alter_configs(self._forwarding, {stopped.config_name: stopped.config_value})

    def _add_partitions(self, image: ClusterImage, names: Iterable[str]) -> None:
        wanted: list[CreatePartitionsTopic] = []
        for name in names:
            topic, count = image.topics.by_name(name), self._source_partitions(name)
            if topic is not None and len(topic.partitions) < count:
                wanted.append(CreatePartitionsTopic(name=name, count=count, assignments=None))
        if wanted:
            request = CreatePartitionsRequest(
                topics=wanted[:_TOPICS_AT_ONCE], timeout_ms=_TIMEOUT_MS, validate_only=False
            )
            self._forwarding.send(request, lambda response: log_refusals(response.results))

    def _source_partitions(self, name: str) -> int:
        topic = self._source.cluster.metadata.topics.get(name)
        return 0 if topic is None else len(topic.partitions)

    def _copy_configs(self, names: list[str], missing: list[str]) -> None:
        """Create missing topics with the source's configs, and copy changed configs of others."""
        wanted = list(dict.fromkeys([*missing, *names]))
        if not wanted:
            return

        def on_described(
            found: dict[ConfigResource, list[ConfigEntry] | ClientError] | None,
            error: ClientError | None,
        ) -> None:
            self.is_busy = False
            if found is None:
                _log.info("Configs of the source's topics are not known: error=%s", error)
                return
            configs = {
                resource.name: _own_configs(entries)
                for resource, entries in found.items()
                if isinstance(entries, list)
            }
            self._create([name for name in missing if name in configs], configs)
            for name in names:
                if name in configs and name not in missing:
                    self._update_configs(name, configs[name])

        self.is_busy = True
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in wanted]
        start_plan(describe_configs(self._source.admin, resources), self._timer, on_described)

    def _create(self, names: list[str], configs: Mapping[str, Mapping[str, str]]) -> None:
        if not names:
            return
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=self._source_partitions(name),
                replication_factor=-1,
                assignments=[],
                configs=[
                    CreatableTopicConfig(name=key, value=value)
                    for key, value in configs[name].items()
                ],
            )
            for name in names
            if self._source_partitions(name)
        ]
        request = CreateTopicsRequest(topics=topics, timeout_ms=_TIMEOUT_MS, validate_only=False)
        self._forwarding.send(request, lambda response: log_refusals(response.topics))

    def _update_configs(self, name: str, source: Mapping[str, str]) -> None:
        own = self._cluster.image.configs.get(TOPIC, name)
        changes: dict[str, str | None] = {
            key: value for key, value in source.items() if own.get(key) != value
        }
        changes |= {key: None for key in own if key not in source and key not in _NOT_COPIED}
        alter_configs(self._forwarding, changes, TOPIC, name)


def _own_configs(entries: Iterable[ConfigEntry]) -> dict[str, str]:
    """Return the configs that are set for a topic, that topics have here, and that are copied."""
    found: dict[str, str] = {}
    for entry in entries:
        key = TOPIC_CONFIGS.get(entry.name)
        if entry.source != "topic" or entry.value is None or key is None:
            continue
        if entry.name in _NOT_COPIED:
            continue
        try:
            key.parse(entry.value)
        except ConfigError:
            continue
        found[entry.name] = entry.value
    return found
