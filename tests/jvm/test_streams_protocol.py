"""A Kafka Streams word count with `group.protocol=streams` (KIP-1071) on Barnabas.

Instances join, leave and die. The counts are compared with a direct count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

import barnabas
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.admin.group_descriptions import StreamsGroupDescription
from barnabas.testing.broker_process import BrokerProcess
from jvm.kafka_process import QUICK_FENCING, KafkaProcess
from jvm.word_count import APPLICATION, CHANGELOG, PARTITIONS, REPARTITION, Pipeline
from selection import nightly_rows_unless
from waiting import eventually, eventually_equal

COMMAND = "streams.StreamsGroupCommand"
# A stateful task of each partition, and as many stateless tasks.
TASKS = 2 * PARTITIONS
SETTINGS = {
    **QUICK_FENCING,
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    # The sessions of killed members end early.
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.heartbeat.interval.ms": "300",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}


# Barnabas with both guarantees, and Apache Kafka with exactly_once_v2.
CASES = nightly_rows_unless(
    ("barnabas", "exactly_once_v2").__eq__,
    [
        ("barnabas", "exactly_once_v2"),
        ("barnabas", "at_least_once"),
        ("kafka", "exactly_once_v2"),
    ],
)


@pytest.fixture
def broker(kind: str, tmp_path: Path) -> Iterator[BrokerProcess | KafkaProcess]:
    process = (KafkaProcess if kind == "kafka" else BrokerProcess)(tmp_path / "broker", SETTINGS)
    try:
        process.start()
        yield process
    finally:
        process.close()


class Group:
    """The group of the application, which the Barnabas client describes."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def configure(self, **configs: str) -> None:
        resource = ConfigResource(ResourceType.GROUP, APPLICATION)
        with barnabas.Client(self._bootstrap) as client:
            named = {key.replace("_", "."): value for key, value in configs.items()}
            client.admin.alter_configs(resource, named)

    def describe(self) -> StreamsGroupDescription:
        with barnabas.Client(self._bootstrap) as client:
            found = client.admin.describe_streams_groups([APPLICATION])[APPLICATION]
        assert isinstance(found, StreamsGroupDescription), found
        return found

    def await_members(self, count: int) -> StreamsGroupDescription:
        """Wait until the group is stable with that many members and all tasks assigned.

        With several members, each store has a standby.
        """
        standbys = PARTITIONS if count > 1 else 0

        def stable() -> StreamsGroupDescription | None:
            found = self.describe()
            assigned = [member.assignment for member in found.members]
            active = Counter(task for each in assigned for task in each.active)
            standby = Counter(task for each in assigned for task in each.standby)
            is_stable = (
                found.state == "Stable"
                and len(assigned) == count
                and (len(active), active.total()) == (TASKS, TASKS)
                and (len(standby), standby.total()) == (standbys, standbys)
                and not any(each.warmup for each in assigned)
            )
            return found if is_stable else None

        return eventually(stable, lambda: str(self.describe()))


@pytest.mark.parametrize(("kind", "guarantee"), CASES)
def test_counts_are_right_while_instances_join_leave_and_die(
    broker: BrokerProcess | KafkaProcess,
    guarantee: str,
    tmp_path: Path,
    kafka_tools: Callable[..., CompletedProcess[str]],
) -> None:
    is_exact = guarantee == "exactly_once_v2"
    pipeline = Pipeline(
        broker.bootstrap,
        tmp_path,
        group_protocol="streams",
        processing_guarantee=guarantee,
        num_stream_threads=1,
        # Each word is counted in a separate record.
        statestore_cache_max_bytes=0,
        # The transactions of a killed instance end early.
        transaction_timeout_ms=10_000,
    )
    group = Group(broker.bootstrap)
    group.configure(streams_num_standby_replicas="1")

    def settle() -> None:
        """Wait for the counts if a later fault may repeat uncommitted records."""
        if not is_exact:
            pipeline.await_counts()

    with pipeline.start("first") as first:
        pipeline.feed(200)
        group.await_members(1)
        with pipeline.launch("second") as second:
            # From one instance to four.
            second.write_line("add")
            second.write_line("add")
            four = group.await_members(4)
            assert {len(each.assignment.active) for each in four.members} == {TASKS // 4}
            assert len({each.process_id for each in four.members}) == 4
            pipeline.feed(200)
            settle()
            # Back to three, and after a kill of two instances, to one.
            second.write_line("remove")
            group.await_members(3)
            pipeline.feed(100)
            settle()
            second.kill()
        pipeline.feed(100)
        group.await_members(1)
        settle()
        broker.kill()
        broker.start()
        pipeline.feed(100)
        eventually_equal(lambda: pipeline.last_by_key("counts"), dict(pipeline.expected))
        settle()

        # The second process takes over from the first one.
        with pipeline.start("second") as second:
            group.await_members(2)
            assert first.end_input() == 0
            pipeline.feed(100)
            group.await_members(1)
            eventually_equal(lambda: pipeline.last_by_key("counts"), dict(pipeline.expected))
            describe_by_tool(kafka_tools, broker.bootstrap, group.describe())
            assert second.end_input() == 0
    assert group.describe().state == "Empty"
    assert pipeline.last_by_key(CHANGELOG) == pipeline.expected
    if is_exact:
        # A word that was counted twice would skip a number or repeat one.
        counted = {word: list(range(1, count + 1)) for word, count in pipeline.expected.items()}
        assert pipeline.values_by_key("counts") == counted


def describe_by_tool(
    run: Callable[..., CompletedProcess[str]], bootstrap: str, group: StreamsGroupDescription
) -> None:
    """Check that Kafka's tool lists and describes the group with one member."""
    (member,) = group.members

    def rows(*words: str) -> list[list[str]]:
        done = run(COMMAND, "--bootstrap-server", bootstrap, *words)
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr[-3000:]}"
        return [line.split() for line in done.stdout.splitlines() if line.strip()]

    assert [APPLICATION, "Stable"] in rows("--list", "--state")
    of_group = ("--describe", "--group", APPLICATION)
    (state,) = rows(*of_group, "--state", "--verbose")[1:]
    assert (state[0], state[-1]) == (APPLICATION, "1")
    assert "Stable" in state
    printed = rows(*of_group, "--members", "--verbose")
    assert member.member_id in str(printed)
    offsets = rows(*of_group)[1:]
    assert {(row[1], row[2]) for row in offsets} >= {
        (topic, str(partition))
        for topic in ("lines", REPARTITION)
        for partition in range(PARTITIONS)
    }
