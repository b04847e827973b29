"""Group members for tests: kcat processes and confluent-kafka consumers."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from barnabas.testing.broker_process import BrokerProcess
from jvm.kafka_process import KafkaProcess
from waiting import eventually

WAIT_S = 60
# Session timeouts of members that must stay even on a slow machine, and of members that must expire
# soon.
SESSION_MS = 120_000
BRIEF_SESSION_MS = 1_500
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}
FAST = {
    "session.timeout.ms": str(SESSION_MS),
    "heartbeat.interval.ms": "100",
    "auto.commit.interval.ms": "200",
    "auto.offset.reset": "earliest",
    "reconnect.backoff.max.ms": "200",
    # Retry a commit at once if the broker failed, before the next commit.
    "retry.backoff.ms": "1",
}


class KcatMember:
    """`kcat -G`: a member in a separate process, which can be killed."""

    def __init__(self, bootstrap: str, group: str, topic: str, output: Path, **more: str) -> None:
        options = FAST | {key.replace("_", "."): value for key, value in more.items()}
        words = ["kcat", "-b", bootstrap, "-G", group, "-u", "-E"]
        for key, value in options.items():
            words += ["-X", f"{key}={value}"]
        self._output = output
        with output.open("wb") as out:
            self._process = subprocess.Popen([*words, topic], stdout=out, stderr=subprocess.DEVNULL)

    def lines(self) -> list[str]:
        """The records that the member has read."""
        return self._output.read_text().splitlines()

    def kill(self) -> None:
        """Kill the process, so that it cannot leave the group."""
        self._process.kill()
        self._process.wait()

    def leave(self) -> None:
        """Leave the group and end."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(WAIT_S)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None


class Kcats:
    """Starts kcat members, and stops the remaining ones at the end of the test."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self.started: list[KcatMember] = []

    def start(self, group: str, topic: str, **more: str) -> KcatMember:
        output = self._directory / f"member-{len(self.started)}"
        member = KcatMember(self._bootstrap, group, topic, output, **more)
        self.started.append(member)
        return member

    def all_lines(self) -> list[str]:
        return [line for member in self.started for line in member.lines()]

    def close(self) -> None:
        for member in self.started:
            if member.is_running:
                member.kill()


class ConfluentMember:
    """A confluent-kafka consumer that a separate thread polls; it records its rebalances."""

    def __init__(self, bootstrap: str, group: str, topic: str, **more: object) -> None:
        options = FAST | {key.replace("_", "."): value for key, value in more.items()}
        self.consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **options})
        # ("assigned" or "revoked" or "lost", partitions), in order.
        self.events: list[tuple[str, list[int]]] = []
        self.values: list[bytes] = []
        self.errors: list[str] = []
        self.owned: set[int] = set()
        self._cooperative = "cooperative" in str(options.get("partition.assignment.strategy", ""))
        self._stopping = threading.Event()
        self.consumer.subscribe(
            [topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            message = self.consumer.poll(0.1)
            if message is None:
                continue
            if message.error():
                self.errors.append(message.error().name())
                if message.error().fatal():
                    return
            else:
                self.values.append(message.value())

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = sorted(each.partition for each in partitions)
        self.events.append(("assigned", numbers))
        self.owned = (self.owned if self._cooperative else set()) | set(numbers)

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = sorted(each.partition for each in partitions)
        self.events.append(("revoked", numbers))
        self.owned -= set(numbers)

    def _on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        numbers = sorted(each.partition for each in partitions)
        self.events.append(("lost", numbers))
        self.owned -= set(numbers)

    def stop_polling(self) -> None:
        self._stopping.set()
        self._thread.join(WAIT_S)

    def close(self) -> None:
        """Leave the group, if the member is not static."""
        self.stop_polling()
        self.consumer.close()


def described(admin: AdminClient, group: str) -> Any:
    """Return the state and members from DescribeGroups."""
    return admin.describe_consumer_groups([group])[group].result(WAIT_S)


def assignments(admin: AdminClient, group: str) -> dict[str, set[int]] | None:
    """Return the partitions by member id; None if the group is not stable or unavailable."""
    try:
        found = described(admin, group)
    except KafkaException:
        return None
    if found.state.name != "STABLE":
        return None
    return {
        member.member_id: {each.partition for each in member.assignment.topic_partitions}
        for member in found.members
    }


def await_members(
    admin: AdminClient, group: str, count: int, partitions: int
) -> dict[str, set[int]]:
    """Wait until the group is stable with `count` members, and each partition has one owner."""

    def stable_assignments() -> dict[str, set[int]] | None:
        found = assignments(admin, group)
        if found is None:
            return None
        owned = [partition for owner in found.values() for partition in owner]
        assert len(owned) == len(set(owned)), found
        # A partition that moves in a cooperative rebalance has no owner until the next rebalance.
        return found if len(found) == count and set(owned) == set(range(partitions)) else None

    return eventually(stable_assignments, f"{count} members of {group}") or {}


def committed(admin: AdminClient, group: str) -> dict[int, int] | None:
    """Return the committed offsets by partition; None if the coordinator is unavailable."""
    request = [ConsumerGroupTopicPartitions(group)]
    try:
        found = admin.list_consumer_group_offsets(request)[group].result(WAIT_S)
    except (KafkaException, TimeoutError):
        return None
    if any(each.error for each in found.topic_partitions):
        return None
    return {each.partition: each.offset for each in found.topic_partitions}


class OffsetWatch:
    """Observes the committed offsets of a group, which must never decrease."""

    def __init__(self, admin: AdminClient, group: str) -> None:
        self._admin = admin
        self._group = group
        self._seen: dict[int, int] = {}
        self.decreases: list[str] = []
        self.observations = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(0.05):
            found = committed(self._admin, self._group)
            if found is None:
                # The coordinator is unavailable, so skip this observation.
                continue
            self.observations += 1
            for partition, before in self._seen.items():
                offset = found.get(partition, -1)
                if offset < before:
                    self.decreases.append(f"{partition}: {before} -> {offset}")
            self._seen |= found

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(2 * WAIT_S)
        assert self.observations
        assert not self.decreases, self.decreases


@contextmanager
def group_broker(kind: str, directory: Path) -> Iterator[str]:
    """Start a broker of `kind` (barnabas or kafka) with SETTINGS, and yield its address."""
    made = KafkaProcess if kind == "kafka" else BrokerProcess
    process = made(directory, SETTINGS)
    process.start()
    try:
        yield process.bootstrap
    finally:
        process.kill()


@pytest.fixture(scope="module")
def group_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker without an initial rebalance delay, which allows short sessions."""
    target = os.environ.get("BARNABAS_CONFORMANCE_BOOTSTRAP")
    if target and target != "kafka":
        yield target
        return
    with group_broker(target or "barnabas", tmp_path_factory.mktemp("groups")) as bootstrap:
        yield bootstrap


@pytest.fixture
def kcats(group_bootstrap: str, tmp_path: Path) -> Iterator[Kcats]:
    made = Kcats(group_bootstrap, tmp_path)
    yield made
    made.close()
