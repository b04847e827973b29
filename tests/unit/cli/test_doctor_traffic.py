"""`barnabas doctor` for the records of a cluster: hot partitions, and times in the future."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.cli.doctor import traffic
from barnabas.cli.doctor.clients import report_clients
from barnabas.cli.doctor.diagnosis import Diagnosis, Finding
from barnabas.cli.doctor.traffic import examine_traffic, read_ends
from barnabas.cli.load.rates import ClientRates
from barnabas.client.connections.metadata_cache import PartitionInfo, TopicInfo
from barnabas.client.errors import ClientError
from barnabas.client.fetch.offset_lookups import ListedOffset
from barnabas.client.topic_partition import TopicPartition
from barnabas.server.listeners.client_traffic import ClientKey

HOUR_MS = 3_600_000


class WrittenTopics:
    """Topics of three partitions in virtual time, with records per second by partition."""

    def __init__(self, clock: list[float], **rates: tuple[int, int, int]) -> None:
        self._clock = clock
        self._rates = rates
        # Records at the beginning, and the largest timestamp of each partition.
        self.kept = (0, 0, 0)
        self.times_ms: dict[TopicPartition, int] = {}
        # Leader epoch of the record with the largest timestamp.
        self.epoch = -1
        self.admin = SimpleNamespace(list_offsets=self._list)
        self.internal: tuple[str, ...] = ()

    def describe_topics(self) -> dict[str, TopicInfo]:
        partitions = {n: PartitionInfo(n, 1 + n, 3, (1 + n,), (1 + n,)) for n in range(3)}
        return {
            topic: TopicInfo(topic, bytes(16), topic in self.internal, partitions)
            for topic in self._rates
        }

    def _list(self, wanted: dict[TopicPartition, str]) -> dict[TopicPartition, ListedOffset]:
        return {tp: self._offset(tp, spec) for tp, spec in wanted.items()}

    def _offset(self, tp: TopicPartition, spec: str) -> ListedOffset:
        number = tp.partition
        end = self.kept[number] + int(self._clock[0] * self._rates[tp.topic][number])
        if spec == "max-timestamp":
            return ListedOffset(end - 1, self.times_ms.get(tp, 1), self.epoch)
        return ListedOffset(0 if spec == "earliest" else end, -1, -1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [10.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    virtual = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep, time=time.time)
    monkeypatch.setattr(traffic, "time", virtual)
    return now


def examined(client: Any, clock: list[float], elapsed_s: float = 0.1) -> list[Finding]:
    first = read_ends(client)
    clock[0] += elapsed_s
    diagnosis = Diagnosis()
    examine_traffic(client, first, diagnosis)
    return diagnosis.findings


def test_a_partition_that_takes_most_of_a_topic_is_hot(clock: list[float]) -> None:
    found = examined(WrittenTopics(clock, keyed=(10, 2000, 30), even=(700, 700, 700)), clock)
    assert [f.verdict for f in found] == ["note"]
    assert found[0].what.startswith("keyed-1 is hot: it takes 98% of the records of keyed, 2.0k a")
    assert "barnabas consume -p 1 --from -20 -e -f %k keyed shows the keys" in found[0].remedy


def test_a_partition_that_is_written_only_for_a_moment_is_not_hot(clock: list[float]) -> None:
    topics = WrittenTopics(clock, sticky=(0, 2000, 0))
    topics.kept = (90_000, 70_000, 90_000)
    assert examined(topics, clock) == []


def test_internal_topics_have_no_hot_partitions(clock: list[float]) -> None:
    topics = WrittenTopics(clock, __consumer_offsets=(0, 2000, 0))
    topics.internal = ("__consumer_offsets",)
    assert examined(topics, clock) == []


def test_slow_topics_have_no_hot_partitions(clock: list[float]) -> None:
    assert examined(WrittenTopics(clock, slow=(0, 20, 0)), clock) == []


def test_topics_without_writes_cost_no_time(clock: list[float]) -> None:
    topics = WrittenTopics(clock, idle=(0, 0, 0))
    topics.kept = (5, 0, 0)
    assert examined(topics, clock) == []
    assert clock[0] == 10.1


def test_times_in_the_future_are_noted_once_per_clock(clock: list[float]) -> None:
    topics = WrittenTopics(clock, orders=(1, 1, 1), __consumer_offsets=(1, 1, 1))
    topics.internal = ("__consumer_offsets",)
    ahead = int(time.time() * 1000) + 2 * HOUR_MS
    topics.times_ms = {
        TopicPartition("orders", 0): ahead,
        TopicPartition("orders", 1): ahead,
        TopicPartition("__consumer_offsets", 2): ahead,
    }
    found = examined(topics, clock)
    assert [f.verdict for f in found] == ["note", "note"]
    assert "__consumer_offsets-2: the timestamp of offset" in found[0].what
    assert "the clock of its leader, broker 3, is wrong" in found[0].what
    assert "the clock of its producer is wrong" in found[1].what
    assert "NTP" in found[1].remedy


@pytest.mark.parametrize(
    ("epoch", "clock_of"), [(3, "its leader, broker 2,"), (2, "an earlier leader (epoch 2)")]
)
def test_the_clock_of_the_leader_that_wrote_the_record_is_named(
    epoch: int, clock_of: str, clock: list[float]
) -> None:
    topics = WrittenTopics(clock, __consumer_offsets=(1, 1, 1))
    topics.internal = ("__consumer_offsets",)
    topics.times_ms = {TopicPartition("__consumer_offsets", 1): int(time.time() * 1000) + HOUR_MS}
    topics.epoch = epoch
    (found,) = examined(topics, clock)
    assert f"the clock of {clock_of} is wrong, or was wrong" in found.what


def test_brokers_without_the_request_leave_the_examination_complete(clock: list[float]) -> None:
    topics: Any = WrittenTopics(clock, old=(1, 1, 1))
    offsets = topics.admin.list_offsets

    def list_offsets(wanted: dict[TopicPartition, str]) -> Any:
        if "max-timestamp" in wanted.values():
            raise ClientError("too old")
        return offsets(wanted)

    topics.admin.list_offsets = list_offsets
    diagnosis = Diagnosis()
    examine_traffic(topics, read_ends(topics), diagnosis)
    assert diagnosis.is_complete
    assert "timestamps of records were not read: too old" in diagnosis.findings[0].what


def reported(**rates: float) -> list[Finding]:
    diagnosis = Diagnosis()
    clients = {
        ClientKey("User:ANONYMOUS", name): ClientRates(1.0, rate, 0.0)
        for name, rate in rates.items()
    }
    report_clients(clients, diagnosis)
    return diagnosis.findings


def test_a_client_that_writes_most_is_limited_by_its_client_id() -> None:
    (found,) = reported(loader=4e6, billing=1e6)
    assert found.verdict == "note"
    assert found.what.startswith("client id loader of User:ANONYMOUS writes 3.8 MiB/s, 80% of what")
    assert "barnabas quotas set --client-id=loader producer_byte_rate=BYTES" in found.remedy


def test_clients_that_write_little_or_evenly_are_not_reported() -> None:
    assert reported(loader=4e5, billing=1e3) == []
    assert reported(one=4e6, two=4e6, three=4e6) == []
    assert reported() == []
