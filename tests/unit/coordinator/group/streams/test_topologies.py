"""Topologies of streams groups: their check, and their configuration for the existing topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from barnabas.coordinator.group.group_base import NAMES_LENGTH_MAX, RefusalError
from barnabas.coordinator.group.streams.configuring import (
    TOPICS_STEP,
    ConfiguredTopology,
    StreamsStatus,
    configuring_topology,
    is_large,
)
from barnabas.coordinator.group.streams.topology import (
    TOPOLOGY_SIZE_MAX,
    StreamsTopology,
    check_topology,
    required_topics,
    topology_value,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.streams_groups import (
    CopartitionGroup,
    KeyValue,
    Subtopology,
    TopicInfo,
    Topology,
)
from unit.coordinator.group.streams.topology_cases import TopologyCase, topology_case


def topic(name: str, partitions: int = 0, **configs: str) -> TopicInfo:
    listed = [KeyValue(key=key, value=value) for key, value in configs.items()]
    return TopicInfo(name=name, partitions=partitions, replication_factor=0, topic_configs=listed)


def subtopology(
    name: str,
    sources: str = "",
    *,
    reads: tuple[TopicInfo, ...] = (),
    writes: str = "",
    logs: tuple[TopicInfo, ...] = (),
    together: tuple[tuple[list[int], list[int]], ...] = (),
) -> Subtopology:
    return Subtopology(
        subtopology_id=name,
        source_topics=sources.split(),
        source_topic_regex=[],
        state_changelog_topics=list(logs),
        repartition_sink_topics=writes.split(),
        repartition_source_topics=list(reads),
        copartition_groups=[
            CopartitionGroup(
                source_topics=of_sources,
                source_topic_regex=[],
                repartition_source_topics=of_repartitions,
            )
            for of_sources, of_repartitions in together
        ],
    )


def configured(topics: Mapping[str, int], *parts: Subtopology) -> ConfiguredTopology:
    return TopologyCase(Topology(epoch=2, subtopologies=list(parts)), topics).configured()


def refusal(check: Callable[[], object]) -> RefusalError:
    with pytest.raises(RefusalError) as caught:
        check()
    return caught.value


def test_a_topology_whose_topics_exist_is_ready() -> None:
    found = configured({"in": 3, "log": 3}, subtopology("0", "in", logs=(topic("log"),)))
    assert found.is_ready
    assert found.epoch == 2
    assert found.subtopology_inputs()["0"].tasks == 3
    assert found.subtopology_inputs()["0"].is_stateful


def test_missing_internal_topics_are_named_with_their_partitions() -> None:
    found = configured(
        {"in": 4},
        subtopology("0", "in", writes="rep"),
        subtopology("1", reads=(topic("rep"),), logs=(topic("log", x="y"),)),
    )
    assert found.problem is not None
    assert found.problem.status == StreamsStatus.MISSING_INTERNAL_TOPICS
    assert {name: each.partitions for name, each in found.to_create.items()} == {"rep": 4, "log": 4}
    assert found.to_create["log"].configs == {"x": "y"}
    assert found.to_create["log"].replication_factor is None
    assert not found.is_ready


def test_missing_source_topics_are_named() -> None:
    found = configured({"a": 1}, subtopology("0", "a b c d e f"))
    assert found.problem is not None
    assert found.problem.status == StreamsStatus.MISSING_SOURCE_TOPICS
    assert "b, c, d and 2 more" in found.problem.detail
    assert found.subtopologies is None


def test_counts_pass_through_chains_of_repartition_topics() -> None:
    found = configured(
        {"in": 5},
        subtopology("2", reads=(topic("r2"),)),
        subtopology("1", reads=(topic("r1"),), writes="r2"),
        subtopology("0", "in", writes="r1"),
    )
    assert {name: each.partitions for name, each in found.to_create.items()} == {"r1": 5, "r2": 5}


def test_copartitioned_repartition_topics_follow_the_source_topic() -> None:
    found = configured(
        {"in": 2, "big": 6},
        subtopology("0", "big", writes="rep"),
        subtopology("1", "in", reads=(topic("rep"),), together=(([0], [0]),)),
    )
    assert found.to_create["rep"].partitions == 2


def test_copartitioned_source_topics_must_have_equal_counts() -> None:
    found = configured({"a": 2, "b": 3}, subtopology("0", "a b", together=(([0, 1], []),)))
    assert found.problem is not None
    assert found.problem.status == StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS
    assert "a=2, b=3" in found.problem.detail


def test_an_existing_changelog_must_have_the_count_of_its_inputs() -> None:
    found = configured({"in": 3, "log": 2}, subtopology("0", "in", logs=(topic("log"),)))
    assert found.problem is not None
    assert found.problem.status == StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS
    assert "log has 2 partitions" in found.problem.detail


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (subtopology("0", reads=(topic("r"),), writes="r"), "depends on itself"),
        (subtopology("0", "in", reads=(topic("r"),)), "No subtopology writes repartition topic r"),
        (subtopology("0"), "reads no topics"),
        (subtopology("0", "in", logs=(topic("log", 3),)), "must be undefined"),
        (subtopology("0", "in", logs=(topic("log"), topic("log"))), "log occurs twice"),
        (subtopology("0", "in", reads=(topic("r", -1),)), "negative"),
        (subtopology("0", "in", together=(([1], []),)), "index 1 of 1"),
        (subtopology("0", "in", together=(([], [-1]),)), "index -1 of 0"),
        (subtopology("0", " ".join(["in"] * TOPOLOGY_SIZE_MAX)), "at most"),
        (subtopology("0", "a" * NAMES_LENGTH_MAX), "characters"),
    ],
)
def test_an_invalid_topology_is_refused(part: Subtopology, message: str) -> None:
    error = refusal(lambda: configured({"in": 1}, part))
    assert error.error == ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert message in error.message


def test_two_subtopologies_with_one_id_are_refused() -> None:
    error = refusal(lambda: configured({"in": 1}, subtopology("0", "in"), subtopology("0", "in")))
    assert "subtopology 0 occurs twice" in error.message


def test_regular_expressions_are_refused() -> None:
    part = subtopology("0", "in")
    part.source_topic_regex.append("a.*")
    error = refusal(lambda: check_topology(Topology(epoch=0, subtopologies=[part])))
    assert error.error == ErrorCode.INVALID_REQUEST


def test_the_order_of_subtopologies_does_not_make_another_topology() -> None:
    parts = [subtopology("0", "a"), subtopology("1", "b")]
    one = StreamsTopology(topology_value(Topology(epoch=0, subtopologies=parts)))
    assert one.is_same(topology_value(Topology(epoch=0, subtopologies=parts[::-1])))
    assert not one.is_same(topology_value(Topology(epoch=0, subtopologies=parts[:1])))
    assert required_topics(one.value) == ["a", "b"]


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        (
            [subtopology("0", "in", logs=tuple(topic(f"log-{each}") for each in range(9_000)))],
            StreamsStatus.MISSING_INTERNAL_TOPICS,
        ),
        (
            [subtopology("0", " ".join(f"in-{each}" for each in range(9_000)))],
            StreamsStatus.MISSING_SOURCE_TOPICS,
        ),
        ([subtopology("0", " ".join(["in"] * 9_000))], None),
        (
            [subtopology(f"{each}", "in", logs=(topic(f"log-{each}"),)) for each in range(3_000)],
            StreamsStatus.MISSING_INTERNAL_TOPICS,
        ),
        (
            [
                subtopology("0", "in", writes=" ".join(f"rep-{each}" for each in range(4_000))),
                subtopology("1", reads=tuple(topic(f"rep-{each}") for each in range(4_000))),
            ],
            StreamsStatus.MISSING_INTERNAL_TOPICS,
        ),
    ],
    ids=["changelogs", "missing-sources", "sources", "subtopologies", "repartition"],
)
def test_no_step_looks_up_many_topics(
    parts: list[Subtopology], problem: StreamsStatus | None
) -> None:
    value, lookups, largest = topology_value(Topology(epoch=0, subtopologies=parts)), 0, 0

    def partition_count(name: str) -> int:
        nonlocal lookups
        lookups += 1
        return 2 if name == "in" else 0

    steps = configuring_topology(value, partition_count, 0)
    while True:
        lookups = 0
        try:
            next(steps)
        except StopIteration as end:
            found: ConfiguredTopology = end.value
            break
        largest = max(largest, lookups)
    assert (found.problem and found.problem.status) == problem
    assert TOPICS_STEP / 2 < largest <= 2 * TOPICS_STEP


def test_drawn_topologies_are_ready_when_the_missing_topics_are_created() -> None:
    created = 0
    for seed in range(100):
        case = topology_case(seed)
        try:
            found = case.configured()
        except RefusalError:
            continue
        if found.to_create:
            topics = {name: each.partitions for name, each in found.to_create.items()}
            assert case._replace(topics={**case.topics, **topics}).configured().is_ready
            created += 1
    assert created > 10


def test_a_large_topology_is_configured_in_many_steps() -> None:
    parts = [
        subtopology(str(place), "in", reads=(topic(f"r{place}"),), writes=f"r{place + 1}")
        for place in range(500)
    ]
    parts.append(subtopology("first", "in", writes="r0"))
    parts.append(subtopology("last", reads=(topic("r500"),)))
    value = topology_value(Topology(epoch=0, subtopologies=parts))
    assert is_large(value)
    assert sum(1 for _ in configuring_topology(value, lambda name: 3 * (name == "in"), 0)) > 500
