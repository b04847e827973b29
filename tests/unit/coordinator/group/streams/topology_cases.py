"""Random topologies and existing topics, from a seed, and the format of StreamsGroups.java."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.coordinator.group.group_base import RefusalError
from barnabas.coordinator.group.requests.streams_requests import (
    described,
    described_value,
)
from barnabas.coordinator.group.streams.configuring import (
    ConfiguredInternalTopic,
    ConfiguredTopology,
    configure_topology,
)
from barnabas.coordinator.group.streams.topology import check_topology, topology_value
from barnabas.protocol.messages import streams_group_describe as describe
from barnabas.protocol.messages.streams_groups import (
    CopartitionGroup,
    KeyValue,
    Subtopology,
    TopicInfo,
    Topology,
)
from unit.coordinator.group.assignors.task_assignor_cases import hex_of

METADATA_HASH = 7
INVALID = ["failed"]


class TopologyCase(NamedTuple):
    """A topology, and the number of partitions of the existing topics."""

    topology: Topology
    topics: Mapping[str, int]

    def configured(self) -> ConfiguredTopology:
        """Check and configure the topology."""
        check_topology(self.topology)
        value = topology_value(self.topology)
        return configure_topology(value, lambda name: self.topics.get(name, 0), METADATA_HASH)

    def ours(self) -> list[str]:
        """Return the result in the format of StreamsGroups.java."""
        try:
            found = self.configured()
        except RefusalError:
            return INVALID
        lines = [
            f"subtopology {hex_of(name)} {each.tasks} {_names(each.source_topics)} "
            f"{_internal(each.repartition_source_topics)} {_names(each.repartition_sink_topics)} "
            f"{_internal(each.changelog_topics)}"
            for name, each in (found.subtopologies or {}).items()
        ]
        if found.problem is not None:
            lines.append(f"problem {found.problem.status.value} {found.problem.detail}")
        lines += [f"create {_topic(each, -1)}" for _, each in sorted(found.to_create.items())]
        lines += _described("described", described(found))
        lines += _described("value", described_value(topology_value(self.topology)))
        return lines

    def lines(self) -> list[str]:
        """Return the case in the format of StreamsGroups.java."""
        lines = [f"topology {self.topology.epoch}"]
        lines += [f"topic {hex_of(name)} {count}" for name, count in self.topics.items()]
        for each in self.topology.subtopologies:
            lines.append(f"subtopology {hex_of(each.subtopology_id)}")
            lines += [f"source {hex_of(name)}" for name in each.source_topics]
            lines += [f"sink {hex_of(name)}" for name in each.repartition_sink_topics]
            for kind, topics in (
                ("repartition", each.repartition_source_topics),
                ("changelog", each.state_changelog_topics),
            ):
                lines += [
                    f"{kind} {hex_of(topic.name)} {topic.partitions} {topic.replication_factor} "
                    f"{_pairs(topic.topic_configs)}"
                    for topic in topics
                ]
            lines += [
                f"copartition {_places(group.source_topics)} "
                f"{_places(group.repartition_source_topics)}"
                for group in each.copartition_groups
            ]
        return [*lines, "end"]


def facts(lines: Iterable[str]) -> list[str]:
    """Return an answer with the topics and numbers of its message in place of the message."""
    found = []
    for line in lines:
        if line.startswith("problem "):
            _, status, message = line.split(" ", 2)
            tokens = sorted(re.findall(r"(?:in|rep|log)-[\w-]+|\b\d+\b", message))
            found.append(f"problem {status} {' '.join(tokens)}")
        elif line.startswith("failed"):
            found.append("failed")
        else:
            found.append(line)
    return found


def _names(names: Iterable[str]) -> str:
    return ",".join(sorted(map(hex_of, names))) or "-"


def _internal(topics: Mapping[str, ConfiguredInternalTopic]) -> str:
    return ";".join(sorted(_topic(each, "-") for each in topics.values())) or "-"


def _topic(topic: ConfiguredInternalTopic, default: object) -> str:
    factor = default if topic.replication_factor is None else topic.replication_factor
    configs = sorted(f"{hex_of(key)}={hex_of(value)}" for key, value in topic.configs.items())
    return f"{hex_of(topic.name)}:{topic.partitions}:{factor}:{','.join(configs) or '-'}"


def _described(kind: str, topology: describe.Topology) -> list[str]:
    return [
        f"{kind} {topology.epoch} {hex_of(each.subtopology_id)} "
        f"{','.join(map(hex_of, each.source_topics)) or '-'} "
        f"{','.join(map(hex_of, each.repartition_sink_topics)) or '-'} "
        f"{_infos(each.state_changelog_topics)} {_infos(each.repartition_source_topics)}"
        for each in topology.subtopologies or []
    ]


def _infos(topics: Iterable[describe.TopicInfo]) -> str:
    return (
        ";".join(
            f"{hex_of(each.name)}:{each.partitions}:{each.replication_factor}:"
            f"{_pairs(each.topic_configs)}"
            for each in topics
        )
        or "-"
    )


def _pairs(configs: Iterable[KeyValue | describe.KeyValue]) -> str:
    return ",".join(f"{hex_of(each.key)}={hex_of(each.value)}" for each in configs) or "-"


def _places(places: Iterable[int]) -> str:
    return ",".join(map(str, places)) or "-"


def topology_case(seed: int) -> TopologyCase:
    """Draw a topology. Most are valid; some have loops, or topics that are never written."""
    return _Drawing(seed).case()


class _Drawing:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(f"topology-{seed}")
        size = self._random.choice([1, 3, 8, 20])
        self._sources = [f"in-{self._word()}-{number}" for number in range(size)]
        self._repartitions = [f"rep-{self._word()}-{number}" for number in range(size)]
        counts = self._random.choice([[3], [3], [1, 2, 6], [4, 8]])
        self._counts = {name: self._random.choice(counts) for name in self._sources}
        # Counts that the application gives to repartition topics.
        self._given = {
            name: self._random.choice(counts)
            for name in self._repartitions
            if self._random.random() < self._random.choice([0.0, 0.2, 0.6])
        }
        self._infos: dict[str, TopicInfo] = {}

    def _word(self) -> str:
        return "".join(self._random.choices("abcdefghij", k=self._random.randint(1, 8)))

    def case(self) -> TopologyCase:
        names = [str(number) for number in range(self._random.randint(1, 9))]
        if self._random.random() < 0.2:
            names = [f"{self._word()}{number}" for number in range(len(names))]
        self._random.shuffle(names)
        subtopologies = [self._subtopology(name) for name in names]
        read = {info.name for each in subtopologies for info in each.repartition_source_topics}
        written = {name for each in subtopologies for name in each.repartition_sink_topics}
        if self._random.random() < 0.9:
            # Otherwise some topics are never written.
            for name in sorted(read - written):
                self._random.choice(subtopologies).repartition_sink_topics.append(name)
        topics = dict(self._counts)
        if self._random.random() < 0.15:
            for name in self._random.sample(self._sources, self._random.randint(1, len(topics))):
                del topics[name]
        case = TopologyCase(
            Topology(epoch=self._random.randrange(4), subtopologies=subtopologies), topics
        )
        return case._replace(topics=self._with_internal_topics(case))

    def _subtopology(self, name: str) -> Subtopology:
        sources = self._random.sample(
            self._sources, self._random.randint(0, min(3, len(self._sources)))
        )
        repartitions = self._random.sample(
            self._repartitions,
            self._random.randint(0 if sources else 1, min(2, len(self._repartitions))),
        )
        if self._random.random() < 0.02:
            sources, repartitions = [], []
        return Subtopology(
            subtopology_id=name,
            source_topics=sources,
            source_topic_regex=[],
            state_changelog_topics=[
                self._info(f"log-{self._word()}-{name}-{number}", 0)
                for number in range(self._random.choice([0, 0, 1, 2, 12]))
            ],
            repartition_sink_topics=self._random.sample(
                self._repartitions, self._random.randint(0, min(2, len(self._repartitions)))
            ),
            repartition_source_topics=[self._repartition(each) for each in repartitions],
            copartition_groups=self._groups(len(sources), len(repartitions)),
        )

    def _repartition(self, name: str) -> TopicInfo:
        """Return the same info for each subtopology that reads the topic, with rare exceptions."""
        if name not in self._infos or self._random.random() < 0.05:
            self._infos[name] = self._info(name, self._given.get(name, 0))
        return self._infos[name]

    def _info(self, name: str, partitions: int) -> TopicInfo:
        keys = self._random.sample(
            ["cleanup.policy", "retention.ms", "segment.bytes", "Aa", "BB", "x"],
            self._random.choice([0, 1, 3, 6]),
        )
        return TopicInfo(
            name=name,
            partitions=partitions,
            replication_factor=self._random.choice([0, 0, -1, 3]),
            topic_configs=[KeyValue(key=key, value=self._word()) for key in keys],
        )

    def _groups(self, sources: int, repartitions: int) -> list[CopartitionGroup]:
        return [
            CopartitionGroup(
                source_topics=[i for i in range(sources) if self._random.random() < 0.6],
                source_topic_regex=[],
                repartition_source_topics=[
                    i for i in range(repartitions) if self._random.random() < 0.8
                ],
            )
            for _ in range(self._random.choice([0, 1, 1, 2]))
        ]

    def _with_internal_topics(self, case: TopologyCase) -> dict[str, int]:
        """Add internal topics that exist already: none, some or all, with rare wrong counts."""
        topics = dict(case.topics)
        share = self._random.choice([0.0, 0.5, 1.0, 1.0])
        wrong = self._random.choice([0.0, 0.0, 0.1])
        try:
            to_create = case.configured().to_create
        except RefusalError:
            return topics
        for name, topic in sorted(to_create.items()):
            if self._random.random() < share:
                extra = 1 if self._random.random() < wrong else 0
                topics[name] = topic.partitions + extra
        return topics
