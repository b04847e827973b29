"""Keeps the mirror topics of a link like the topics of its source.

One broker of the cluster does this for all links: the live broker with the lowest id. If two
brokers do it for a moment, the controller refuses what the other has done already.

A round: list the topics of the source, in pages; write new mirrors to the metadata; stop mirrors
whose source was recreated; create missing topics and partitions; copy changed configs.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.client.admin.configs import describe_configs
from barnabas.client.admin.sender import Pause
from barnabas.client.admin.topics import TopicState, describe_topic_partitions
from barnabas.client.errors import ClientError
from barnabas.metadata.configs_image import ALL_BROKERS, BROKER, TOPIC
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
    LinkTable,
    MirrorState,
    MirrorTopic,
    read_links,
    setting_name,
)
from barnabas.server.links.link_configs import alter_configs, log_refusals
from barnabas.server.links.name_filter import NameFilter
from barnabas.server.links.plan_runner import start_plan
from barnabas.settings.key import ConfigError
from barnabas.storage.config import TOPIC_CONFIGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.client.admin.configs import ConfigEntry
    from barnabas.client.admin.sender import Plan
    from barnabas.metadata.image import ClusterImage
    from barnabas.replication.links.link_table import LinkDefinition
    from barnabas.runtime.clock import Timer
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.controller_access.controller_access import ControllerAccess
    from barnabas.server.links.source_cluster import SourceCluster

_log = logging.getLogger(__name__)

_TIMEOUT_MS = 30_000
# Interval of the rounds; and the least interval for each partition in the source.
_INTERVAL_MS = 5_000.0
_INTERVAL_MS_OF_PARTITION = 1.0
# Partitions of one response of the source: some 3 ms of work.
_PAGE_PARTITIONS = 500
# Limits of one request to the controller, and of one to the source.
_MIRRORS_AT_ONCE = 200
_TOPICS_AT_ONCE = 50
# The reason of conflicts, for the operator.
_CONFLICT = "a topic of this name existed in this cluster before"
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
        cluster_id: str,
    ) -> None:
        self._source = source
        self._cluster = cluster
        self._forwarding = forwarding
        self._timer = timer
        # Id of this cluster.
        self._cluster_id = cluster_id
        # The links and mirrors as of now: a round takes some time. Moved by the link.
        self.table = LinkTable({}, {})
        # The topics of the source as of the last round, and the decisions about their names.
        self._topics: dict[str, TopicState] = {}
        self._filter = NameFilter()
        # Whether a round is in progress.
        self.is_busy = False
        # Index of the first mirror whose configs the next round reads.
        self._next_mirror = 0
        # Topics that match and are not mirrored. Each is logged once.
        self._refused: set[str] = set()

    @property
    def interval_ms(self) -> float:
        """Time between rounds, which grows with the source to bound their share of the CPU."""
        partitions = sum(len(each.partitions) for each in self._topics.values())
        return max(_INTERVAL_MS, partitions * _INTERVAL_MS_OF_PARTITION)

    def start_round(self, link: LinkDefinition) -> None:
        """Begin a round, unless one is in progress."""
        if self.is_busy:
            return
        self.is_busy = True

        def on_done(_none: None, error: ClientError | None) -> None:
            self.is_busy = False
            if error is not None:
                _log.info("Topics of a source are not known: link=%s error=%s", link.name, error)

        start_plan(self._round(link), self._timer, on_done)

    def _round(self, link: LinkDefinition) -> Plan[None]:
        cluster = self._source.cluster
        if cluster.metadata.cluster_id is None:
            yield {"metadata": partial(cluster.refresh, ())}
        source_id = cluster.metadata.cluster_id
        if source_id in (None, self._cluster_id) or link.source_cluster_id not in ("", source_id):
            return
        if not link.source_cluster_id:
            name = setting_name(link.name, SOURCE_CLUSTER_ID)
            alter_configs(self._forwarding, {name: source_id})
        found = yield from describe_topic_partitions(
            self._source.admin, page_partitions=_PAGE_PARTITIONS
        )
        self._topics = {
            name: each
            for name, each in found.items()
            if isinstance(each, TopicState) and not each.is_internal
        }
        yield Pause(0.0)
        names = [] if link.topics is None else (yield from self._filter.select(link.topics, found))
        yield from self._write_mirrors(link, names)
        yield Pause(0.0)
        known = [each for each in self.table.mirrors_of(link.name) if each.topic in self._topics]
        self._stop_recreated(known)
        active = [each.topic for each in known if each.state is MirrorState.ACTIVE]
        image = self._cluster.image
        missing = [name for name in active if image.topics.by_name(name) is None]
        self._add_partitions(image, active)
        # Each round reads the configs of the next mirrors.
        start = self._next_mirror if self._next_mirror < len(active) else 0
        self._next_mirror = start + _MIRRORS_AT_ONCE
        yield from self._copy_configs(active[start : self._next_mirror], missing[:_TOPICS_AT_ONCE])

    def _write_mirrors(self, link: LinkDefinition, names: Iterable[str]) -> Plan[None]:
        """Make topics of the source mirrors, before they are created.

        A topic that exists here already becomes a conflict, until it is deleted here or in the
        source.
        """
        names = list(names)
        new: list[TopicState] = []
        changes = self._ended_conflicts(link, names)
        for name in names:
            known = self.table.mirrors.get(name)
            if name not in self._topics or not (known is None or known.is_conflict_of(link.name)):
                continue
            if self._cluster.image.topics.by_name(name) is None:
                new.append(self._topics[name])
            elif known is None and len(changes) < _MIRRORS_AT_ONCE:
                changes |= self._new_conflict(link, self._topics[name])
        origins = (yield from self._origins()) if new else {}
        for topic in new:
            clusters = origins.get(topic.name, ())
            if self._cluster_id in clusters:
                reason = "the topic of the source is a mirror of a topic of this cluster"
                self._refuse(link, topic.name, reason)
                known = self.table.mirrors.get(topic.name)
                if known is not None and known.is_conflict_of(link.name):
                    # The conflict has ended: the topic of this cluster was deleted.
                    changes[known.config_name] = None
                continue
            mirror = MirrorTopic(
                link.name, topic.name, MirrorState.ACTIVE, topic.topic_id, origins=clusters
            )
            changes[mirror.config_name] = mirror.config_value
            if len(changes) >= _MIRRORS_AT_ONCE:
                break
        alter_configs(self._forwarding, changes)

    def _ended_conflicts(self, link: LinkDefinition, names: Iterable[str]) -> dict[str, str | None]:
        """Return the changes that delete the conflicts whose topics the source has no longer."""
        left = set(names)
        return {
            each.config_name: None
            for each in self.table.mirrors_of(link.name)
            if each.is_conflict_of(link.name) and each.topic not in left
        }

    def _new_conflict(self, link: LinkDefinition, topic: TopicState) -> dict[str, str | None]:
        """Return the change that makes a topic of this cluster a conflict."""
        mirror = MirrorTopic(link.name, topic.name, MirrorState.CONFLICT, topic.topic_id, _CONFLICT)
        # The table may be older than the image, which has a mirror before its topic.
        if mirror.config_name in self._cluster.image.configs.get(BROKER, ALL_BROKERS):
            return {}
        self._refuse(link, topic.name, "the topic exists in this cluster")
        return {mirror.config_name: mirror.config_value}

    def _refuse(self, link: LinkDefinition, name: str, reason: str) -> None:
        if name not in self._refused:
            self._refused.add(name)
            _log.warning(
                "Topic is not mirrored: link=%s topic=%s reason=%s", link.name, name, reason
            )

    def _origins(self) -> Plan[dict[str, tuple[str, ...]]]:
        """Return the clusters that the mirrors of the source come from, by topic.

        A source of another kind has no such configs, and one that refuses to show them is trusted.
        """
        resource = ConfigResource(ResourceType.BROKER, ALL_BROKERS)
        found = yield from describe_configs(self._source.admin, [resource])
        entries = found[resource]
        if isinstance(entries, ClientError):
            return {}
        links = read_links({entry.name: entry.value or "" for entry in entries})
        return {
            mirror.topic: (links.links[mirror.link].source_cluster_id, *mirror.origins)
            for mirror in links.mirrors.values()
            if mirror.is_read_only and mirror.link in links.links
        }

    def _stop_recreated(self, mirrors: Iterable[MirrorTopic]) -> None:
        """Stop mirrors whose source was deleted and created again: its log is another one."""
        for mirror in mirrors:
            source_id = self._topics[mirror.topic].topic_id
            if mirror.state is MirrorState.ACTIVE and not mirror.may_copy(source_id):
                self.stop(mirror, "the topic was deleted and created again in the source cluster")

    def stop(self, mirror: MirrorTopic, reason: str) -> None:
        """Write to the metadata that a mirror stops."""
        _log.error("Mirror stopped: link=%s topic=%s reason=%s", mirror.link, mirror.topic, reason)
        stopped = replace(mirror, state=MirrorState.STOPPED, reason=reason)
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
        topic = self._topics.get(name)
        return 0 if topic is None else len(topic.partitions)

    def _copy_configs(self, names: list[str], missing: list[str]) -> Plan[None]:
        """Create missing topics with the source's configs, and copy changed configs of others."""
        wanted = list(dict.fromkeys([*missing, *names]))
        if not wanted:
            return
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in wanted]
        found = yield from describe_configs(self._source.admin, resources)
        configs: dict[str, dict[str, str]] = {}
        for resource, entries in found.items():
            if isinstance(entries, list):
                configs[resource.name] = _own_configs(entries)
                yield Pause(0.0)
        self._create([name for name in missing if name in configs], configs)
        for name in names:
            if name in configs and name not in missing:
                self._update_configs(name, configs[name])

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
