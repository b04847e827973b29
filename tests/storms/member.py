"""One member of a storm: a process that reads, notes what it processed, and commits."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import barnabas
from barnabas.client.consumer.assignment.subscription import RebalanceListener
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition
from storms.history import Diary

POLL_S = 0.1
SESSION_MS = 1_500


@dataclass(frozen=True)
class MemberOptions:
    """What a member is to be."""

    name: str
    bootstrap: str
    group: str
    topic: str
    directory: Path
    # "classic" or "consumer".
    protocol: str
    assignor: str
    auto_commit: bool
    # Of what this member does by chance.
    seed: int


class Listener(RebalanceListener):
    """Notes what the group says; `reached` has what was processed of the partitions at hand."""

    def __init__(self, diary: Diary, consumer: barnabas.Consumer) -> None:
        self._diary = diary
        self._consumer = consumer
        self.reached: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._note("assigned", assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._note("revoked", revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self._note("lost", lost)

    def _note(self, kind: str, partitions: Collection[TopicPartition]) -> None:
        generation = self._consumer.group_metadata().generation_id
        for tp in partitions:
            self.reached.pop(tp, None)
            self.committed.pop(tp, None)
            self._diary.write(kind, partition=tp.partition, generation=generation)


def run(options: MemberOptions) -> None:
    """Until SIGTERM; then close."""
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stopping.append(number))
    diary = Diary(options.directory, options.name)
    try:
        _consume(options, diary, stopping)
    except BaseException as error:
        diary.write("failed", words=repr(error))
        raise


def _consume(options: MemberOptions, diary: Diary, stopping: list[int]) -> None:
    rng = random.Random(options.seed)
    keys: dict[str, Any] = {
        "bootstrap_servers": options.bootstrap,
        "group_id": options.group,
        "group_protocol": options.protocol,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": options.auto_commit,
        "auto_commit_interval_ms": 200,
        "max_poll_records": 200,
        "fetch_max_wait_ms": 200,
        "client_id": options.name,
    }
    if options.protocol == "classic":
        keys["session_timeout_ms"] = SESSION_MS
        keys["heartbeat_interval_ms"] = 200
        keys["partition_assignment_strategy"] = options.assignor
    else:
        keys["group_remote_assignor"] = options.assignor
    with barnabas.Consumer(**keys) as consumer:
        listener = Listener(diary, consumer)
        consumer.subscribe([options.topic], listener)
        while not stopping:
            records = consumer.poll(POLL_S)
            generation = consumer.group_metadata().generation_id
            for tp, part in records.items():
                first, end = _range(tp, [record.offset for record in part])
                diary.write(
                    "processed",
                    partition=tp.partition,
                    first=first,
                    end=end,
                    generation=generation,
                )
                listener.reached[tp] = end
            wanted = listener.reached != listener.committed and (not records or rng.random() < 0.7)
            if wanted and not options.auto_commit:
                _commit(consumer, listener, diary)
    diary.write("closed")


def _range(tp: TopicPartition, offsets: list[int]) -> tuple[int, int]:
    """First and end; nothing was deleted, so the offsets of a partition follow one another."""
    first, end = offsets[0], offsets[-1] + 1
    assert offsets == list(range(first, end)), (tp, offsets)
    return first, end


def _commit(consumer: barnabas.Consumer, listener: Listener, diary: Diary) -> None:
    generation = consumer.group_metadata().generation_id
    offsets = dict(listener.reached)
    began_ns = time.monotonic_ns()
    try:
        consumer.commit(offsets)
    except ClientError as error:
        diary.write("refused", generation=generation, words=repr(error))
        return
    listener.committed = offsets
    for tp, offset in offsets.items():
        diary.write(
            "committed",
            partition=tp.partition,
            end=offset,
            generation=generation,
            began_ns=began_ns,
        )
