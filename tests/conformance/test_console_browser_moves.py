"""Replicas move between two brokers by a plan, as a user of Chromium makes it."""

from __future__ import annotations

import pytest

from barnabas.client.facade import Client
from barnabas.testing.cluster_process import ClusterProcess
from conformance.console_process import running_console
from conformance.console_user import ConsoleUser
from tools.chromium import IS_INSTALLED, Chromium
from waiting import eventually

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not IS_INSTALLED, reason="chromium is missing (make debian-packages)"),
]

TOPIC, SLOW = "moves-planned", "moves-slow"


def test_a_broker_is_emptied_by_a_plan_that_is_previewed_and_ends() -> None:
    with (
        ClusterProcess(2) as cluster,
        Client(cluster.bootstrap) as client,
        running_console(cluster.bootstrap, "--interval", "1") as running,
        Chromium() as browser,
    ):
        client.create_topic(TOPIC, 4, 1)
        with client.producer() as producer:
            for number in range(8):
                producer.send(TOPIC, b"x" * 10_000, partition=number % 4)
        running.log_in(browser, "/topics")
        user = ConsoleUser(browser, running.url)
        user.open("/topic", name=TOPIC)
        user.press("Move replicas")
        # Broker 2 becomes empty.
        user.check("2")
        user.press("Plan")
        user.sees("Partitions that change 2", "Bytes to copy")
        assert len(user.rows("Moves")) == 2
        assert user.row("2", "Brokers before")["Replicas"] == "2 → 0"
        user.type("Limit", "1GB")
        user.press("Preview the moves")
        user.sees(f"{TOPIC}-", "954 MiB")
        assert not client.admin.list_reassignments()
        user.press("Move")
        user.sees("began to move 2 partitions")

        def brokers() -> set[tuple[int, ...]]:
            partitions = client.describe_topics([TOPIC])[TOPIC].partitions
            return {tuple(each.replicas) for each in partitions.values()}

        eventually(lambda: brokers() == {(1,)}, brokers)
        user.open("/reassignments")
        user.sees("No replicas move")
        stop_a_slow_move(user, client)


def stop_a_slow_move(user: ConsoleUser, client: Client) -> None:
    """Move a partition with a limit by which the copy takes minutes, and cancel that."""
    client.create_topic(SLOW, 1, 1)
    source = client.describe_topics([SLOW])[SLOW].partitions[0].leader
    with client.producer() as producer:
        for _ in range(40):
            producer.send(SLOW, b"x" * 100_000)
    part = user.part("Move a partition")
    part.fill(Topic=SLOW, Partition="0")
    part.type("Brokers", f"{source},{3 - source}")
    part.type("Limit", "20000")
    part.press("Move")
    user.sees("19.5 KiB a second")
    user.press("Move them")
    user.sees(f"began to move {SLOW}-0")
    user.finds("document.querySelector('progress')?.value > 0")
    assert user.row(f"{SLOW}:0")
    user.press("Cancel all moves")
    row = list(user.row(f"{SLOW}-0").values())
    assert row[2] == str(source)
    user.press("Cancel the move")
    user.sees("canceled 1 reassignment")
    user.sees("No replicas move")

    def replicas() -> tuple[int, ...]:
        return tuple(client.describe_topics([SLOW])[SLOW].partitions[0].replicas)

    eventually(lambda: replicas() == (source,), replicas)
