"""`barnabas why` when the brokers do not answer all requests within --timeout."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest
from click.testing import CliRunner, Result

from barnabas.cli.admin.quorum import QuorumState
from barnabas.cli.partitions.snapshot import PartitionSnapshot
from barnabas.cli.why import commands
from barnabas.cli.why.facts import BrokerFacts, PartitionFacts
from barnabas.client.admin.topics import PartitionState
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.client.facade import Client


class SlowCluster:
    """A client whose calls have reached their total limit."""

    def topics(self, **_options: Any) -> list[str]:
        raise TimeoutError("the calls together took longer than 10000 ms")


class UnreadableCluster:
    """A client that reads no record before the total limit."""

    def stream(self, _ranges: Any) -> Any:
        raise TimeoutError("the calls together took longer than 10000 ms")


def run_why(
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_quorum_lost: bool = False,
    target: str = "orders",
    client: object = SlowCluster(),
) -> tuple[Result, list[bool]]:
    limited: list[bool] = []

    @contextmanager
    def connected(*_words: Any, limit_total: bool = False) -> Iterator[Client]:
        limited.append(limit_total)
        yield cast("Client", client)

    monkeypatch.setattr(commands, "connected", connected)
    state = QuorumState(None, is_lost=is_quorum_lost)
    monkeypatch.setattr("barnabas.cli.admin.quorum.quorum_state", lambda _client: state)
    return CliRunner().invoke(commands.why, [target, "--json"]), limited


def test_the_findings_before_the_limit_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    done, limited = run_why(monkeypatch, is_quorum_lost=True)
    assert limited == [True]
    assert done.exit_code == 1
    subjects = {each["subject"]: each["reasons"] for each in json.loads(done.stdout)["answers"]}
    assert list(subjects) == ["the cluster", "the rest"]
    assert "within 10 s (--timeout)" in subjects["the rest"][0]["what"]


def test_without_findings_the_limit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = run_why(monkeypatch)
    assert isinstance(done.exception, TimeoutError)


def test_the_partition_is_explained_if_the_record_is_not_read_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tp = TopicPartition("orders", 0)
    state = PartitionState(0, 1, 5, (1,), (1,), (), (), ())
    now = PartitionSnapshot(tp, state, False, 1, 9, {1: 9})
    facts = PartitionFacts(now, now, 2.0, BrokerFacts(frozenset({1}), controller=1), log_start=0)
    gather = "barnabas.cli.why.gather.gather_partitions"
    monkeypatch.setattr(gather, lambda *_arguments: [facts])
    done, _ = run_why(monkeypatch, target="orders:0@3", client=UnreadableCluster())
    answers = json.loads(done.stdout)["answers"]
    assert [(each["subject"], each["reasons"][0]["kind"]) for each in answers] == [
        ("orders-0", "well"),
        ("the rest", "not-asked"),
    ]
    # Nothing is wrong, but not everything was examined.
    assert done.exit_code == 3
    assert (json.loads(done.stdout)["well"], json.loads(done.stdout)["complete"]) == (False, False)
