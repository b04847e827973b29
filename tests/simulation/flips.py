"""Damaged files: a broker on a simulated disk is stopped, damaged, started and checked, by a seed.

A seed selects settings, records, the end of the broker, and the damage of its files: a flipped bit,
or a truncated, emptied or removed file. After each start, all records are read and compared with
the acknowledgements. No record may be lost without a report, no wrong record may be served, and a
damaged partition must not prevent the broker from serving the others.

    python -m simulation.flips --seeds 1000 [--first 1]
"""

from __future__ import annotations

import argparse
import logging
import random
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.log_offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.record.batch import check_crc, read_header
from barnabas.record.reader import read_batches
from barnabas.server.configs.configuration import read_configuration
from barnabas.server.process.node import Node
from barnabas.server.startup.node_failure import NodeFailedError
from barnabas.storage.errors import StorageError
from barnabas.storage.files.checkpoint import (
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    CheckpointError,
    OffsetCheckpoint,
)
from simulation.power_loss_model import ViolationError
from unit.server.simulated_broker import SimulatedBroker, SimulatedClient

if TYPE_CHECKING:
    from barnabas.storage.topic_partition import TopicPartition

ROUNDS = 4
BATCHES_MAX = 14
TOPICS = ("first", "second", "third")
METADATA = "__cluster_metadata-0"
EARLIEST, LATEST = -2, -1
# Interval at which the broker stores the committed offset of the metadata. After a kill, damage
# above this offset looks like an incomplete last write.
NOTED_MS = 1000
# Kinds of damage, by frequency.
DAMAGES = ("flip", "flip", "flip", "flip", "truncate", "empty", "remove")


class FlipWalk:
    """The run of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.broker = SimulatedBroker(
            seed,
            offsets_topic_num_partitions="1",
            log_index_interval_bytes=str(self.rng.choice([0, 200, 4096])),
            log_initial_task_delay_ms="300",
            log_flush_offset_checkpoint_interval_ms="700",
            log_flush_start_offset_checkpoint_interval_ms="900",
            replica_high_watermark_checkpoint_interval_ms="800",
            log_segment_delete_delay_ms="500",
            metadata_log_max_record_bytes_between_snapshots=str(self.rng.choice([1500, 100_000])),
        )
        # Values of acknowledged records by offset, and log start offset, by topic.
        self.values: dict[str, dict[int, bytes]] = {}
        self.starts: dict[str, int] = {}
        self.numbers = iter(range(1 << 30))
        # Whether the broker has had time to store the committed offset of its metadata.
        self.is_metadata_noted = False
        self.counts: Counter[str] = Counter()

    def run(self) -> Counter[str]:
        """Run random steps, and check after each start."""
        for name in TOPICS:
            segment_ms = str(self.rng.choice([500, 100_000]))
            self.broker.make_topic(name, segment_ms=segment_ms)
            self.values[name], self.starts[name] = {}, 0
        for _ in range(ROUNDS):
            for name in TOPICS:
                self.fill(name)
            wait_ms = self.rng.choice([10, 2000])
            self.broker.world.run_for(wait_ms)
            self.is_metadata_noted = wait_ms > NOTED_MS
            self.damage_and_check()
        return self.counts

    def fill(self, name: str) -> None:
        for _ in range(self.rng.randint(0, BATCHES_MAX)):
            values = [b"%d" % next(self.numbers) for _ in range(self.rng.choice([1, 1, 2, 5]))]
            answer = self.broker.produce(name, *(value + bytes(40) for value in values))
            if answer.error_code:
                raise ViolationError(f"{name}: {ErrorCode(answer.error_code).name} to a producer")
            for index, value in enumerate(values):
                self.values[name][answer.base_offset + index] = value + bytes(40)
            self.broker.world.run_for(self.rng.choice([0, 5, 400]))
        if self.rng.random() < 0.15 and self.values[name]:
            self.delete_records(name, self.rng.choice(sorted(self.values[name])))

    def delete_records(self, name: str, offset: int) -> None:
        partition = DeleteRecordsPartition(partition_index=0, offset=offset)
        topic = DeleteRecordsTopic(name=name, partitions=[partition])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
        answer = self.broker.ask(request, 2).topics[0].partitions[0]
        if answer.error_code:
            raise ViolationError(f"{name}: {ErrorCode(answer.error_code).name} to DeleteRecords")
        self.starts[name] = max(self.starts[name], answer.low_watermark)

    # -- damage ----------------------------------------------------------------------------------

    def damage_and_check(self) -> None:
        broker = self.broker
        was_clean = self.rng.random() < 0.5
        if was_clean:
            broker.stop()
        else:
            broker.host.kill()
        path = self.rng.choice(self.files())
        before = broker.host.disk.read(path)
        noted = self.noted()
        how = self.rng.choice(DAMAGES)
        where = self.damage(path, before, how)
        self.counts[f"{how}, {'clean' if was_clean else 'killed'}"] += 1
        what = f"{how} of {path}{where} after a {'clean stop' if was_clean else 'kill'}"
        if not self.start(what):
            self.counts["refused to start"] += 1
            broker.host.kill()
            broker.host.disk.write_atomically(path, before)
            if not self.start(what):
                raise ViolationError(f"{what}: mended, and it does not start")
        if how == "flip" or was_clean or not path.endswith(".log"):
            # Without another file that shows the end, this looks like a power loss.
            noted = {}
        reported = sum(broker.node.shared.log_dependencies.damage.counts.values())
        self.counts["reported"] += bool(reported)
        may_forget = METADATA in what and not was_clean and not self.is_metadata_noted
        for name in TOPICS:
            # A log that ends within a batch looks like a power loss, which is not damage.
            if may_forget and (reported or how == "truncate") and self.is_unknown(name):
                self.counts["topics renamed as stray"] += 1
                self.give_up(name)
                continue
            self.check(
                name, what, is_reported=bool(reported), noted=noted.get(name) if noted else None
            )

    def noted(self) -> dict[str, int]:
        """Return the end offsets that the checkpoints contain."""
        disk = self.broker.host.disk
        found = dict.fromkeys(TOPICS, 0)
        for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
            try:
                offsets: dict[TopicPartition, int] = OffsetCheckpoint(disk, "/data", name).read()
            except CheckpointError:
                # Damaged in the previous round, and not rewritten yet.
                continue
            for partition, offset in offsets.items():
                if partition.topic in found:
                    found[partition.topic] = max(found[partition.topic], offset)
        return found

    def files(self) -> list[str]:
        disk = self.broker.host.disk
        found = []
        for name in disk.list("/data"):
            path = f"/data/{name}"
            if disk.is_directory(path):
                found += [f"{path}/{each}" for each in disk.list(path)]
            elif name != ".lock":
                found.append(path)
        return [path for path in found if disk.size(path)]

    def damage(self, path: str, content: bytes, how: str) -> str:
        """Damage a file, and return a description of the place."""
        disk = self.broker.host.disk
        if how == "remove":
            disk.remove(path)
            return ""
        if how == "flip":
            # Half of the flips are in the first or last bytes, where short files have their data.
            bits = len(content) * 8
            bit = self.rng.choice([self.rng.randrange(bits), self.rng.randrange(min(bits, 500))])
            data = bytearray(content)
            data[bit // 8] ^= 1 << bit % 8
            disk.write_atomically(path, bytes(data))
            return f" at byte {bit // 8}, bit {bit % 8}"
        size = 0 if how == "empty" else self.rng.randrange(len(content))
        disk.write_atomically(path, content[:size])
        return f" to {size} of {len(content)} bytes"

    def start(self, what: str) -> bool:
        """Start the broker. Return False if it refuses with a message for the operator."""
        broker = self.broker
        broker.host.start()
        broker.ready.clear()
        broker.failures.clear()
        try:
            broker.node = Node(
                read_configuration(broker.settings),
                broker.host.runtime,
                broker.ready.append,
                broker.failures.append,
            )
            broker.node.start()
            started = broker.world.run_until(lambda: bool(broker.ready or broker.failures))
        except (NodeFailedError, StorageError) as error:
            return self._refused(what, error)
        if broker.failures:
            return self._refused(what, broker.failures[0])
        if not started:
            raise ViolationError(f"{what}: it neither starts nor says why")
        broker.client = SimulatedClient(broker.world, f"client-{broker.world.scheduler.now_ms}")
        return True

    def _refused(self, what: str, error: BaseException) -> bool:
        if not isinstance(error, NodeFailedError | StorageError):
            raise ViolationError(f"{what}: {type(error).__name__}: {error}") from error
        if METADATA not in what and "meta.properties" not in what:
            raise ViolationError(
                f"{what}: one partition's file keeps the broker from starting: {error}"
            )
        return False

    # -- checks ----------------------------------------------------------------------------------

    def check(self, name: str, what: str, *, is_reported: bool, noted: int | None) -> None:
        """Compare all records with those that were acknowledged.

        Args:
            noted: records above it may be lost without a report; None if no record may.
        """
        known, start = self.values[name], self.starts[name]
        wanted = {offset: value for offset, value in known.items() if offset >= start}
        earliest, latest = self.offset(name, EARLIEST), self.offset(name, LATEST)
        if earliest is None or latest is None:
            if not is_reported:
                raise ViolationError(f"{what}: {name} is offline, and no damage was reported")
            self.give_up(name)
            return
        found: dict[int, bytes] = {}
        refused = self.read(name, max(earliest, 0), latest, found)
        for offset, value in found.items():
            if known.get(offset) != value:
                raise ViolationError(f"{what}: {name} has another record at {offset}")
        missing = {offset for offset in wanted if offset not in found and offset not in refused}
        unnoted = {offset for offset in missing if noted is not None and offset >= noted}
        if missing - unnoted and not is_reported:
            raise ViolationError(f"{what}: {name} lost {sorted(missing)[:5]} without a report")
        self.counts["records checked"] += len(found)
        self.counts["records lost, reported"] += len(missing)
        self.counts["records refused"] += len(refused)
        if refused:
            self.give_up(name)
            return
        # The log continues from its present end.
        self.values[name] = {offset: known[offset] for offset in found if offset in known}
        self.starts[name] = max(earliest, 0)

    def give_up(self, name: str) -> None:
        """Replace a damaged partition by a new topic of the same name."""
        from barnabas.protocol.messages.topics import DeleteTopicsRequest

        self.counts["partitions given up"] += 1
        self.broker.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5)
        self.broker.world.run_for(1000)
        self.broker.make_topic(name)
        self.values[name], self.starts[name] = {}, 0

    def is_unknown(self, name: str) -> bool:
        """Return whether the broker has no such topic."""
        return self.list_offset(name, LATEST).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def list_offset(self, name: str, timestamp: int) -> Any:
        """Return the partition's part of the response to ListOffsets."""
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = ListOffsetsTopic(name=name, partitions=[partition])
        request = ListOffsetsRequest(replica_id=-1, topics=[topic])
        return self.broker.ask(request, 5).topics[0].partitions[0]

    def offset(self, name: str, timestamp: int) -> int | None:
        """Return start or end offset of the log; None if the partition is offline."""
        for _ in range(100):
            answer = self.list_offset(name, timestamp)
            if answer.error_code == 0:
                return int(answer.offset)
            if answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                return None
            self.broker.world.run_for(50)
        raise ViolationError(f"{name}: {ErrorCode(answer.error_code).name} to ListOffsets")

    def read(self, name: str, start: int, end: int, found: dict[int, bytes]) -> set[int]:
        """Read batch by batch. Return the offsets with an error of the broker or a wrong CRC."""
        refused: set[int] = set()
        offset = start
        while offset < end:
            partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
            topic = FetchTopic(topic=name, partitions=[partition])
            request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic])
            answer = self.broker.ask(request, 11).responses[0].partitions[0]
            records = bytes(answer.records or b"")
            if answer.error_code or not records:
                if answer.error_code not in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE):
                    raise ViolationError(f"{name}: {ErrorCode(answer.error_code).name} at {offset}")
                refused.add(offset)
                offset += 1
                continue
            header = read_header(records)
            if not check_crc(records, 0, header):
                refused.add(offset)
                offset += 1
                continue
            for _, batch in read_batches(records):
                found.update((each.offset, each.value or b"") for each in batch)
            offset = header.next_offset
        return refused


def run(seed: int) -> Counter[str]:
    """Run one seed. Raises ViolationError, or any error of the broker."""
    return FlipWalk(seed).run()


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
