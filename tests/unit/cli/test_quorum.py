"""Describing and changing a quorum, and whether it has a leader, by responses of its leader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from barnabas.cli.admin import quorum as command
from barnabas.cli.common.output import fail
from barnabas.client.admin.cluster import QuorumDescription, QuorumReplica, VoterEndpoint
from barnabas.client.errors import ClientError, broker_error
from barnabas.protocol.errors import ErrorCode

NOW_MS = 1_700_000_000_000


def replica(node: int, end: int, fetched_ms_ago: int | None, directory: int = 0) -> QuorumReplica:
    at = -1 if fetched_ms_ago is None else NOW_MS - fetched_ms_ago
    return QuorumReplica(node, end, at, at, bytes([directory] * 16))


class Quorum:
    """A client whose cluster has this quorum."""

    def __init__(self, described: QuorumDescription) -> None:
        self.described = described
        self.changes: list[tuple[Any, ...]] = []
        self.admin = SimpleNamespace(
            describe_quorum=lambda: self.described,
            add_voter=lambda *words: self.changes.append(("add", *words)),
            remove_voter=lambda *words: self.changes.append(("remove", *words)),
        )

    def run(self, monkeypatch: pytest.MonkeyPatch, *words: str) -> Any:
        @contextmanager
        def connected(*_words: Any) -> Iterator[Quorum]:
            try:
                yield self
            except ClientError as error:
                fail(str(error))

        monkeypatch.setattr(command, "connected", connected)
        return CliRunner().invoke(command.quorum, list(words))


def three(*voters: QuorumReplica, observers: tuple[QuorumReplica, ...] = ()) -> Quorum:
    return Quorum(QuorumDescription(1, 7, 100, voters, observers))


def test_lags_and_times_use_the_leaders_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = three(
        replica(1, 100, 0),
        replica(2, 98, 400),
        replica(3, 100, 10),
        observers=(replica(9, 90, 90),),
    )
    done = quorum.run(monkeypatch, "describe")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == [
        "leader 1, epoch 7, high watermark 100, 3 voters, 1 observer",
        "node\trole\tend\tlag\tfetched\tcaught up\tlistens at",
        "1\tleader\t100\t0\t-\t-\t-",
        "2\tvoter\t98\t2\t0.4 s ago\t0.4 s ago\t-",
        "3\tvoter\t100\t0\t0.0 s ago\t0.0 s ago\t-",
        "9\tobserver\t90\t10\t0.1 s ago\t0.1 s ago\t-",
    ]


def test_one_silent_voter_of_three_exits_with_status_one(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = three(replica(1, 100, 0), replica(2, 60, 120_000), replica(3, 100, 10))
    done = quorum.run(monkeypatch, "describe")
    assert done.exit_code == 1
    assert (
        "voter 2 does not fetch; 2 of 3 voters must be available, so the quorum tolerates "
        "no further failure"
    ) in done.stdout
    assert "2 m ago" in done.stdout
    listed = json.loads(quorum.run(monkeypatch, "describe", "--json").stdout)
    assert [voter["stale"] for voter in listed["voters"]] == [False, True, False]
    assert [voter["lag"] for voter in listed["voters"]] == [0, 40, 0]


def test_one_silent_voter_of_five_exits_with_status_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [replica(node, 100, 10) for node in (2, 3, 4)]
    quorum = three(replica(1, 100, 0), *others, replica(5, -1, None))
    done = quorum.run(monkeypatch, "describe")
    assert done.exit_code == 0
    assert "5\tvoter\t-\t-\tnever\tnever" in done.stdout
    assert done.stdout.endswith("voter 5 does not fetch; 3 of 5 voters must be available\n")


def test_an_observer_becomes_a_voter_with_its_known_directory_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quorum = three(replica(1, 100, 0, 1), observers=(replica(4, 100, 10, 4),))
    words = ["add", "4", "-e", "CONTROLLER://h:9093", "-e", "OTHER://[::1]:9094"]
    assert quorum.run(monkeypatch, *words).exit_code == 0
    endpoints = [VoterEndpoint("CONTROLLER", "h", 9093), VoterEndpoint("OTHER", "::1", 9094)]
    assert quorum.changes == [("add", 4, bytes([4] * 16), endpoints)]
    absent = quorum.run(monkeypatch, "add", "5", "-e", "CONTROLLER://h:9093")
    assert (absent.exit_code, absent.stderr) == (
        1,
        "error: the quorum has no observer 5; observers: 4\n",
    )


def test_a_voter_is_removed_by_its_directory_id(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = three(replica(1, 100, 0, 1), replica(2, 100, 0, 2))
    done = quorum.run(monkeypatch, "remove", "2")
    assert done.stdout == "removed voter 2; voters: 1, 2\n"
    other = "AQIDBAUGBwgJCgsMDQ4PEA"
    quorum.run(monkeypatch, "remove", "2", "--directory-id", other)
    assert quorum.changes == [("remove", 2, bytes([2] * 16)), ("remove", 2, bytes(range(1, 17)))]
    assert quorum.run(monkeypatch, "remove", "2", "--directory-id", "x").exit_code == 2


def test_changing_a_static_quorum_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = three(replica(1, 100, 0), replica(2, 100, 0))
    done = quorum.run(monkeypatch, "remove", "2")
    assert done.exit_code == 1
    assert "the quorum is static" in done.stderr
    assert not quorum.changes


LED = QuorumDescription(1, 1, 5, (QuorumReplica(1, 5, 1, 1),), ())
ELECTION = QuorumDescription(-1, 1, 5, (), ())
REFUSED = broker_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "quorum")


@pytest.mark.parametrize(
    ("answers", "is_lost", "elapsed_s"),
    [
        ((LED,), False, 0.0),
        ((ELECTION, LED), False, 1.5),
        ((ELECTION, ELECTION), True, 1.5),
        ((REFUSED,), False, 0.0),
    ],
)
def test_an_election_is_no_loss(
    monkeypatch: pytest.MonkeyPatch,
    answers: tuple[QuorumDescription | ClientError, ...],
    is_lost: bool,
    elapsed_s: float,
) -> None:
    clock, remaining = [0.0], list(answers)

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    def describe_quorum(*, once: bool) -> QuorumDescription:
        found = remaining.pop(0)
        if isinstance(found, ClientError):
            raise found
        return found

    virtual = SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep)
    monkeypatch.setattr(command, "time", virtual)
    client: Any = SimpleNamespace(admin=SimpleNamespace(describe_quorum=describe_quorum))
    assert command.quorum_state(client).is_lost is is_lost
    assert (remaining, clock[0]) == ([], elapsed_s)
