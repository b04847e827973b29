"""Power loss: a broker on a simulated disk is killed or loses power, and is checked, by a seed.

A seed selects topics, settings and a random sequence of produce, roll, retention, deletion, group
commits, metadata changes, clean stops, kills and power losses. After each start, all records are
read and compared with the acknowledgements of the client.

    python -m simulation.power_loss --seeds 1000 [--first 1]
"""

from __future__ import annotations

import argparse
import logging
import random
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.log_offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import FindCoordinatorRequest
from barnabas.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from barnabas.protocol.messages.transactions import InitProducerIdRequest
from barnabas.record.builder import BatchBuilder
from barnabas.record.legacy import read_records
from barnabas.storage.topic_partition import TopicPartition
from simulation.power_loss_model import Batch, TopicModel, ViolationError
from unit.server.simulated_broker import SimulatedBroker, produce_request

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 4
STEPS_MAX = 25
GROUP = "g"
LATEST, EARLIEST = -1, -2
DIRECTORIES = ("/one", "/two")


def settings_of(rng: random.Random) -> dict[str, str]:
    """Return settings with which all background work is frequent."""
    settings = {
        "log_dirs": ",".join(DIRECTORIES[: rng.choice([1, 2])]),
        "offsets_topic_num_partitions": "2",
        "log_initial_task_delay_ms": "300",
        "log_retention_check_interval_ms": "1500",
        "log_flush_offset_checkpoint_interval_ms": "700",
        "log_flush_start_offset_checkpoint_interval_ms": "900",
        "log_flush_scheduler_interval_ms": "400",
        "replica_high_watermark_checkpoint_interval_ms": "800",
        "log_segment_delete_delay_ms": "500",
        "metadata_log_max_record_bytes_between_snapshots": "1500",
        "metadata_log_segment_ms": "3000",
    }
    if rng.random() < 0.4:
        settings["log_flush_interval_messages"] = "1"
    return settings


class PowerLossWalk:
    """The run of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        settings = settings_of(self.rng)
        self.all_flushed = "log_flush_interval_messages" in settings
        self.broker = SimulatedBroker(seed, **settings)
        self.topics: dict[str, TopicModel] = {}
        # The last acknowledged committed offset, and newer ones without a response.
        self.committed: int | None = None
        self.tried: set[int] = set()
        self.in_flight: list[tuple[TopicModel, Batch, list]] = []
        self.counts: Counter[str] = Counter()
        self.numbers = iter(range(1, 1 << 30))

    def run(self) -> Counter[str]:
        """Run random steps, and check after each start."""
        for name, flush in (("flushed", 1), ("some", 7), ("plain", 0)):
            self.create(name, flush)
        self.broker.ask(FindCoordinatorRequest(key=GROUP, key_type=0), 3)
        for _ in range(ROUNDS):
            for _ in range(self.rng.randint(1, STEPS_MAX)):
                self.step()
            self.end_and_check()
        return self.counts

    # -- steps -----------------------------------------------------------------------------------

    def step(self) -> None:
        steps: list[tuple[int, Callable[[], None]]] = [
            (12, self.produce),
            (8, self.produce_without_waiting),
            (5, self.pass_time),
            (4, self.commit),
            (2, self.delete_records),
            (1, self.delete_topic),
            (1, lambda: self.create(f"t{next(self.numbers)}", self.rng.choice([0, 1, 7]))),
            (2, self.move),
        ]
        weights = [weight for weight, _ in steps]
        self.rng.choices([action for _, action in steps], weights)[0]()

    def create(self, name: str, flush_messages: int) -> None:
        is_short = self.rng.random() < 0.3
        configs = {"segment.ms": str(self.rng.choice([500, 3000, 100_000]))}
        if flush_messages:
            configs["flush.messages"] = str(flush_messages)
        elif self.rng.random() < 0.5:
            configs["flush.ms"] = "500"
        if is_short:
            configs["retention.ms"] = "3000"
        topic = CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=k, value=v) for k, v in configs.items()],
        )
        answer = self.broker.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
        assert answer.topics[0].error_code == 0, answer
        is_flushed = flush_messages == 1 or (self.all_flushed and not flush_messages)
        model = TopicModel(name, is_flushed, is_short)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        model.producer_id = self.broker.ask(request, 3).producer_id
        self.topics[name] = model
        self.counts["topics"] += 1

    def any_topic(self) -> TopicModel:
        return self.rng.choice(list(self.topics.values()))

    def new_batch(self, topic: TopicModel) -> Batch:
        size = self.rng.choice([10, 100, 3000, 40_000])
        values = [
            b"%d." % next(self.numbers) + bytes(self.rng.randint(0, size))
            for _ in range(self.rng.randint(1, 5))
        ]
        batch = (topic.next_sequence, values)
        topic.next_sequence += len(values)
        return batch

    def encoded(self, topic: TopicModel, batch: Batch) -> bytes:
        builder = BatchBuilder(
            producer_id=topic.producer_id, producer_epoch=0, base_sequence=batch[0]
        )
        for value in batch[1]:
            builder.append(self.broker.host.clock.wall_ms(), None, value)
        return bytes(builder.build())

    def produce(self) -> None:
        topic = self.any_topic()
        self.settle()
        batch = self.new_batch(topic)
        answer = self.send(topic, batch)
        if answer.error_code:
            name = ErrorCode(answer.error_code).name
            raise ViolationError(f"{topic.name}: a batch is refused with {name}")
        topic.acknowledged(answer.base_offset, batch)
        self.counts["batches"] += 1

    def send(self, topic: TopicModel, batch: Batch):
        request = produce_request(topic.name, self.encoded(topic, batch), self.rng.choice([1, -1]))
        return self.broker.ask(request, 9).responses[0].partition_responses[0]

    def produce_without_waiting(self) -> None:
        topic = self.any_topic()
        batch = self.new_batch(topic)
        request = produce_request(topic.name, self.encoded(topic, batch), self.rng.choice([1, -1]))
        self.in_flight.append((topic, batch, self.broker.client.send(request, 9)))
        topic.unknown.append(batch)
        if self.rng.random() < 0.5:
            self.broker.world.run_for(self.rng.random() * 4)
        self.counts["batches"] += 1

    def settle(self) -> None:
        """Wait for all pending requests."""
        outcomes = [outcome for _, _, outcome in self.in_flight]
        assert self.broker.world.run_until(lambda: all(outcomes))
        self.take_answers()

    def take_answers(self) -> None:
        for topic, batch, outcome in self.in_flight:
            if not outcome or outcome[0][1] is not None:
                continue
            answer = outcome[0][0].responses[0].partition_responses[0]
            if topic.name not in self.topics:
                continue
            if answer.error_code:
                name = ErrorCode(answer.error_code).name
                raise ViolationError(f"{topic.name}: a batch is refused with {name}")
            topic.unknown.remove(batch)
            topic.acknowledged(answer.base_offset, batch)
        self.in_flight.clear()

    def pass_time(self) -> None:
        self.broker.world.run_for(self.rng.choice([1, 20, 300, 1500, 4000]))

    def commit(self) -> None:
        offset = next(self.numbers)
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=GROUP,
            topics=[OffsetCommitRequestTopic(name="flushed", partitions=[partition])],
        )
        self.tried.add(offset)
        if self.rng.random() < 0.3:
            self.broker.client.send(request, 8)
            return
        deadline = 40
        while True:
            answer = self.broker.ask(request, 8).topics[0].partitions[0]
            if answer.error_code == 0:
                break
            # The offsets topic may have been lost with the last power loss.
            self.broker.ask(FindCoordinatorRequest(key=GROUP, key_type=0), 3)
            self.broker.world.run_for(100)
            deadline -= 1
            assert deadline, ErrorCode(answer.error_code).name
        self.committed = offset
        self.counts["commits"] += 1

    def delete_records(self) -> None:
        topic = self.any_topic()
        self.settle()
        offset = self.rng.choice([-1, *topic.values])
        asked = DeleteRecordsTopic(
            name=topic.name, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
        )
        request = DeleteRecordsRequest(topics=[asked], timeout_ms=5000)
        answer = self.broker.ask(request, 2).topics[0].partitions[0]
        assert answer.error_code == 0, answer
        topic.log_start_offset = max(topic.log_start_offset, answer.low_watermark)
        self.counts["records deleted"] += 1

    def delete_topic(self) -> None:
        names = [name for name in self.topics if name != "flushed"]
        if len(names) < 2:
            return
        self.settle()
        name = self.rng.choice(names)
        request = DeleteTopicsRequest(topics=[], topic_names=[name], timeout_ms=1000)
        assert self.broker.ask(request, 5).responses[0].error_code == 0
        del self.topics[name]
        self.counts["topics deleted"] += 1
        if self.rng.random() < 0.5:
            self.create(name, self.rng.choice([0, 1]))

    def move(self) -> None:
        """Move the replica to the other data directory, if there is one."""
        topic = self.any_topic()
        path = self.rng.choice(self.broker.settings["log.dirs"].split(","))
        asked = AlterReplicaLogDirTopic(name=topic.name, partitions=[0])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[asked])])
        answer = self.broker.ask(request, 2).results[0].partitions[0]
        assert answer.error_code == 0, ErrorCode(answer.error_code).name
        self.counts["moves"] += 1

    # -- the end of a life -----------------------------------------------------------------------

    def end_and_check(self) -> None:
        kind = self.rng.choice(["stop", "kill", "power", "power", "power"])
        if kind == "stop":
            self.settle()
        else:
            self.broker.world.run_for(self.rng.random() * 10)
        self.take_answers()
        logs = self.broker.node.broker.logs.logs
        synced = {
            name: logs[TopicPartition(name, 0)].recovery_point
            for name in self.topics
            if TopicPartition(name, 0) in logs
        }
        {"stop": self.broker.stop, "kill": self.broker.host.kill,
         "power": self.broker.host.lose_power}[kind]()  # fmt: skip
        self.counts[kind] += 1
        self.broker.restart()
        if self.broker.failures:
            raise ViolationError(f"the broker failed: {self.broker.failures}")
        self.check_metadata()
        self.check_group(keeps=kind != "power" or self.all_flushed)
        for topic in self.topics.values():
            promised = synced.get(topic.name, 0) if kind == "power" else 1 << 62
            self.check_topic(topic, promised, was_clean=kind == "stop")

    def check_metadata(self) -> None:
        names = {
            topic.name
            for topic in self.broker.metadata(*self.topics).topics
            if not topic.error_code
        }
        if names != set(self.topics):
            raise ViolationError(f"topics {sorted(set(self.topics) ^ names)} are not as they were")
        known = {topic.name for topic in self.broker.node.shared.cluster.image.topics}
        gone = known - set(self.topics) - {"__consumer_offsets"}
        if gone:
            raise ViolationError(f"deleted topics {sorted(gone)} are back")

    def check_group(self, *, keeps: bool) -> None:
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=None)
        request = OffsetFetchRequest(groups=[group], require_stable=False)
        for _ in range(100):
            answer = self.broker.ask(request, 8).groups[0]
            if answer.error_code == 0:
                break
            self.broker.world.run_for(50)
        else:
            if self.committed is None:
                return
            raise ViolationError(f"the group's offsets: {ErrorCode(answer.error_code).name}")
        found = [each.committed_offset for topic in answer.topics for each in topic.partitions]
        offset = found[0] if found else None
        if keeps and self.committed is not None and (offset is None or offset < self.committed):
            raise ViolationError(f"committed offset {self.committed} went back to {offset}")
        if offset is not None and offset not in self.tried:
            raise ViolationError(f"offset {offset} was never committed")
        self.committed = offset

    def check_topic(self, topic: TopicModel, synced: int, *, was_clean: bool) -> None:
        start, end = self.offset(topic, EARLIEST), self.offset(topic, LATEST)
        log = self.broker.node.broker.logs.logs[TopicPartition(topic.name, 0)]
        if not start <= log.high_watermark <= end == log.log_end_offset:
            raise ViolationError(f"{topic.name}: {start} <= {log.high_watermark} <= {end}")
        if was_clean and start < topic.log_start_offset:
            raise ViolationError(f"{topic.name}: the log start went back to {start}")
        lost = topic.check(self.read(topic, start, end), (start, end), synced)
        self.counts["records lost unsynced"] += lost
        self.counts["records checked"] += end - start
        self.check_sequence(topic, end)

    def check_sequence(self, topic: TopicModel, end: int) -> None:
        """Check that the last batch is recognized as a duplicate if it is in the log."""
        if topic.last is not None and topic.last[0] + len(topic.last[1][1]) == end:
            base_offset, batch = topic.last
            if base_offset >= topic.log_start_offset:
                answer = self.send(topic, batch)
                if (answer.error_code, answer.base_offset) != (0, base_offset):
                    raise ViolationError(
                        f"{topic.name}: the batch at {base_offset} is not known as a duplicate: "
                        f"{ErrorCode(answer.error_code).name}, {answer.base_offset}"
                    )
                self.counts["duplicates known"] += 1
        # Lost or unacknowledged records leave a gap of sequences, so use a new producer id.
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        topic.producer_id = self.broker.ask(request, 3).producer_id
        topic.next_sequence, topic.last = 0, None

    def offset(self, topic: TopicModel, timestamp: int) -> int:
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=[partition])]
        )
        for _ in range(100):
            answer = self.broker.ask(request, 5).topics[0].partitions[0]
            if answer.error_code != ErrorCode.OFFSET_NOT_AVAILABLE:
                break
            # The recovered records are being synced.
            self.broker.world.run_for(1)
        if answer.error_code:
            raise ViolationError(f"{topic.name}: {ErrorCode(answer.error_code).name}")
        return answer.offset

    def read(self, topic: TopicModel, start: int, end: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        offset = start
        while offset < end:
            partition = FetchPartition(
                partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
            )
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                topics=[FetchTopic(topic=topic.name, partitions=[partition])],
            )
            answer = self.broker.ask(request, 11).responses[0].partitions[0]
            records = read_records(bytes(answer.records or b""))
            fresh = [(each.offset, each.value) for each in records if each.offset >= offset]
            if answer.error_code or not fresh:
                name = ErrorCode(answer.error_code).name
                raise ViolationError(f"{topic.name}: nothing to read at {offset}: {name}")
            found += fresh
            offset = found[-1][0] + 1
        return found


def run(seed: int) -> Counter[str]:
    """Run one seed. Raises ViolationError, or any error of the broker."""
    return PowerLossWalk(seed).run()


def main() -> int:
    """Run many seeds and print their results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=1)
    options = parser.parse_args()
    # Each start logs its findings; that is expected here.
    logging.disable(logging.CRITICAL)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    started, counts, failed = time.monotonic(), Counter(), []
    for seed in range(options.first, options.first + options.seeds):
        try:
            counts += run(seed)
        except Exception as error:  # noqa: BLE001 - any error is reported
            failed.append(seed)
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
    seconds = time.monotonic() - started
    last = options.first + options.seeds - 1
    print(f"seeds {options.first} to {last}, commit {commit}, {seconds:.0f} s")
    for name, count in sorted(counts.items()):
        print(f"{name:24}{count:>12,}")
    print(f"failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
