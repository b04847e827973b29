"""Additional load: members of consumer, share and streams groups (KIP-848, KIP-932, KIP-1071).

The consumer group (KIP-848) reads the topic of the load and is judged like the classic group. The
share group (KIP-932) has a topic and a writer of its own, with fewer records: each of them is
tracked by itself. All clients are ours; librdkafka's share consumer does not exist. For the streams
group, see `streams_load`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Collection
from typing import Any

import barnabas
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.consumer.assignment.subscription import RebalanceListener
from barnabas.client.errors import ClientError
from barnabas.client.share.acknowledgements import AcknowledgeType
from barnabas.client.topic_partition import TopicPartition
from chaos.cluster_view import ClusterView
from chaos.groups.share_checker import check_share_group
from chaos.groups.share_history import ShareHistory
from chaos.groups.share_notes import ShareNotes
from chaos.history import Commit, History, Run, code_in
from chaos.load import (
    ANSWER_TIMEOUT_MS,
    QUICK,
    Errors,
    LoadOptions,
    Worker,
    plain_consumer,
    read_values,
)
from chaos.streams_load import SETTINGS as STREAMS_SETTINGS, STREAMS_GROUP, StreamsLoad
from chaos.verdict import Verdict
from group_offsets import committed_offsets
from waiting import eventually

MODERN_GROUP = "chaos-modern"
MODERN_MEMBERS = 2
SHARE_TOPIC, SHARE_GROUP = "chaos-shares", "chaos-share-group"
SHARE_PARTITIONS = 2
SHARE_RATE = 40
SHARE_MEMBERS = 2
LOCK_MS = 2_000
DELIVERY_LIMIT = 10
# Of the brokers. The timeouts of consumer and share groups are like those of the classic members.
SETTINGS = {
    **STREAMS_SETTINGS,
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.session.timeout.ms": "6000",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.assignment.interval.ms": "0",
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.delivery.count.limit": str(DELIVERY_LIMIT),
    "share.coordinator.state.topic.num.partitions": "3",
}
POLL_S = 0.2
COMMIT_S = 10.0
# Chances of acknowledgements that do not end a record, or reject it.
CHANCES = (
    (AcknowledgeType.RELEASE, 0.1),
    (AcknowledgeType.REJECT, 0.05),
    (AcknowledgeType.RENEW, 0.05),
)


def _keys(options: LoadOptions) -> dict[str, Any]:
    return {
        **options.keys,
        **QUICK,
        "retry.backoff.max.ms": 100,
        "request.timeout.ms": ANSWER_TIMEOUT_MS,
    }


class ModernReading(Worker, RebalanceListener):
    """A member of the consumer protocol that reads and commits (our client)."""

    def __init__(self, name: str, bootstrap: str, options: LoadOptions, errors: Errors) -> None:
        super().__init__(name)
        self._name = name
        self._bootstrap = bootstrap
        self._options = options
        self._errors = errors
        self.runs: list[Run] = []
        self.commits: list[Commit] = []
        self._current: dict[int, Run] = {}

    def _run(self) -> None:
        keys: dict[str, Any] = {
            **_keys(self._options),
            "group.id": MODERN_GROUP,
            "group.protocol": "consumer",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        with barnabas.Consumer(bootstrap_servers=self._bootstrap, **keys) as consumer:
            consumer.subscribe([self._options.topic], self)
            while not self._stopping.is_set():
                try:
                    self._read(consumer)
                except ClientError as error:
                    self._errors.add(f"consumer protocol: {type(error).__name__}")

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Begin new runs."""
        self._forget(assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """End the runs."""
        self._forget(revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """End the runs."""
        self._forget(lost)

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            self._current.pop(tp.partition, None)

    def _read(self, consumer: barnabas.Consumer) -> None:
        offsets: dict[TopicPartition, int] = {}
        for tp, part in consumer.poll(POLL_S).items():
            run = self._current.get(tp.partition)
            if run is None:
                run = self._current[tp.partition] = Run(self._name, tp.partition)
                self.runs.append(run)
            for record in part:
                run.add(record.offset, code_in(record.value))
                offsets[tp] = record.offset + 1
        if not offsets:
            return
        started = time.monotonic()
        # After an error the result of the commit is unknown, so it does not count.
        consumer.commit(offsets, COMMIT_S)
        ended = time.monotonic()
        self.commits += [
            Commit(tp.partition, offset, started, ended) for tp, offset in offsets.items()
        ]


class _ShareReading(Worker):
    """A member of the share group."""

    def __init__(self, name: str, load: ShareLoad) -> None:
        super().__init__(name)
        self._load = load
        self._notes = ShareNotes(name, load.history, code_in, time.monotonic)
        self._rng = random.Random(name)

    def _run(self) -> None:
        load = self._load
        keys = {
            **_keys(load.options),
            "group.id": SHARE_GROUP,
            "share.acknowledgement.mode": "explicit",
            "fetch.max.wait.ms": 200,
        }
        with barnabas.ShareConsumer(SHARE_TOPIC, bootstrap_servers=load.bootstrap, **keys) as own:
            self._notes.watch(own._core.fetcher)
            own.set_acknowledgement_commit_callback(self._notes.on_results)
            while not self._stopping.is_set():
                try:
                    self._take(own)
                except ClientError as error:
                    load.errors.add(f"share consumer: {type(error).__name__}")
            self._notes.end()

    def _take(self, consumer: barnabas.ShareConsumer) -> None:
        records = consumer.poll(POLL_S)
        self._notes.note(records)
        for record in records:
            kind = self._kind()
            consumer.acknowledge(record, kind)
            self._notes.acknowledge(record, kind)
        if records:
            consumer.commit_sync(COMMIT_S)

    def _kind(self) -> AcknowledgeType:
        chance = self._rng.random()
        for kind, share in CHANCES if not self._load.is_calm.is_set() else ():
            if chance < share:
                return kind
            chance -= share
        return AcknowledgeType.ACCEPT


class _Writing(Worker):
    """The writer of the share group's topic."""

    def __init__(self, load: ShareLoad) -> None:
        super().__init__("share writer")
        self._load = load

    def _run(self) -> None:
        keys = {**_keys(self._load.options), "linger.ms": 5}
        number = 0
        with barnabas.Producer(self._load.bootstrap, **keys) as producer:
            while not self._stopping.wait(1 / SHARE_RATE):
                value = b"%d:%d:" % (0, number)
                producer.send(SHARE_TOPIC, value, partition=number % SHARE_PARTITIONS)
                number += 1
            producer.flush()


class ShareLoad:
    """The share group with its writer.

    Timers are late on a busy machine and nodes fail all the time. So the whole run counts as
    disturbed: only promises that hold at all times are judged.
    """

    def __init__(self, bootstrap: str, options: LoadOptions, errors: Errors) -> None:
        self.bootstrap = bootstrap
        self.options = options
        self.errors = errors
        self.history = ShareHistory(
            LOCK_MS / 1000, DELIVERY_LIMIT, disturbances=[(0.0, float("inf"))]
        )
        # Set at the end: then all records are accepted.
        self.is_calm = threading.Event()
        self._writing = _Writing(self)
        self._members = [_ShareReading(f"share member {n}", self) for n in range(SHARE_MEMBERS)]

    @property
    def workers(self) -> list[Worker]:
        """All clients."""
        return [self._writing, *self._members]

    def configure(self) -> None:
        """Configure the group to read its topic from the start."""
        with barnabas.Client(self.bootstrap, **_keys(self.options)) as client:
            resource = ConfigResource(ResourceType.GROUP, SHARE_GROUP)
            client.admin.alter_configs(resource, {"share.auto.offset.reset": "earliest"})

    def finish(self) -> Verdict:
        """Stop the writer, let members process everything, and judge."""
        self._writing.stop()
        self._writing.join()
        self.is_calm.set()
        keys = self.options.keys
        for partition in range(SHARE_PARTITIONS):
            found = read_values(self.bootstrap, SHARE_TOPIC, partition, keys)
            self.history.logs[partition] = {offset: code_in(value) for offset, value in found}
        with barnabas.Client(self.bootstrap, **_keys(self.options)) as client:
            eventually(
                lambda: self._is_processed(client),
                lambda: f"the share group does not end: lags {self.history.lags}",
            )
        for member in self._members:
            member.stop()
        for member in self._members:
            member.join()
        return check_share_group(self.history)

    def _is_processed(self, client: barnabas.Client) -> bool:
        for member in self._members:
            member.check_alive()
        found = client.admin.describe_share_group_offsets([SHARE_GROUP])[SHARE_GROUP]
        if isinstance(found, ClientError):
            return False
        for tp, offset in found.items():
            if not isinstance(offset, ClientError):
                self.history.start_offsets[tp.partition] = offset.start_offset
                self.history.lags[tp.partition] = offset.lag
        return all(self.history.lags.get(n) == 0 for n in range(SHARE_PARTITIONS))


class GroupLoad:
    """The members of all groups."""

    def __init__(
        self, view: ClusterView, bootstrap: str, options: LoadOptions, errors: Errors
    ) -> None:
        self._bootstrap = bootstrap
        self._options = options
        self._members = [
            ModernReading(f"modern member {number}", bootstrap, options, errors)
            for number in range(MODERN_MEMBERS)
        ]
        self._shares = ShareLoad(bootstrap, options, errors)
        self._streams = StreamsLoad(view, bootstrap, options)
        # Committed offsets from `sample_commits`.
        self._found: list[Commit] = []

    @property
    def topics(self) -> dict[str, int]:
        """The topics that the groups need, with their numbers of partitions."""
        return {SHARE_TOPIC: SHARE_PARTITIONS}

    @property
    def _workers(self) -> list[Worker]:
        return [*self._members, *self._shares.workers, *self._streams.workers]

    def start(self) -> None:
        """Configure the groups; start all members, and the writer of the share group's topic."""
        self._shares.configure()
        self._streams.configure()
        for worker in self._workers:
            worker.start()

    def abandon(self) -> None:
        """Stop all clients without waiting."""
        for worker in self._workers:
            worker.stop()

    def check_alive(self) -> None:
        """Raise the exception of a dead client."""
        for worker in self._workers:
            worker.check_alive()

    def sample_commits(self) -> None:
        """Add the committed offsets of the consumer group to the history."""
        options = self._options
        started = time.monotonic()
        reader = plain_consumer(self._bootstrap, MODERN_GROUP, options.keys)
        found = committed_offsets(reader, options.topic, range(options.partitions))
        ended = time.monotonic()
        self._found += [Commit(n, offset, started, ended, True) for n, offset in found.items()]

    def finish(self, history: History) -> dict[str, Verdict]:
        """Let the groups read everything that was written, and stop.

        Args:
            history: has the logs; receives the events of the consumer group.

        Returns:
            The verdicts on the share group and the streams group. The caller checks the history.
        """
        eventually(
            lambda: (self.check_alive(), not self._behind(history))[1],
            lambda: f"the consumer group did not come to the end: {self._behind(history)}",
        )
        for member in self._members:
            member.stop()
        for member in self._members:
            member.join()
        self.sample_commits()
        history.modern_runs += [run for member in self._members for run in member.runs]
        history.modern_commits += [each for member in self._members for each in member.commits]
        history.modern_commits += self._found
        return {SHARE_GROUP: self._shares.finish(), STREAMS_GROUP: self._streams.finish()}

    @property
    def read(self) -> int:
        """How many records the consumer group has read."""
        return sum(len(run.offsets) for member in self._members for run in member.runs)

    @property
    def delivered(self) -> int:
        """How many records the share group was given, each delivery by itself."""
        return len(self._shares.history.deliveries)

    @property
    def committed(self) -> int:
        """How many commits of the streams group were accepted."""
        return self._streams.commits

    def _behind(self, history: History) -> list[str]:
        committed: dict[int, int] = {}
        for member in self._members:
            for commit in list(member.commits):
                before = committed.get(commit.partition, 0)
                committed[commit.partition] = max(commit.offset, before)
        ends = {n: log.offsets[-1] + 1 for n, log in history.logs.items() if log.offsets}
        return [
            f"{number} at {committed.get(number, 0)} of {end}"
            for number, end in ends.items()
            if committed.get(number, 0) < end
        ]
