"""Whether the metadata quorum has a leader: a loss is only believed when it lasts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.cli.admin import quorum
from barnabas.client.admin.cluster import QuorumDescription, QuorumReplica
from barnabas.client.errors import ClientError, broker_error
from barnabas.protocol.errors import ErrorCode

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
    monkeypatch.setattr(quorum, "time", virtual)
    client: Any = SimpleNamespace(admin=SimpleNamespace(describe_quorum=describe_quorum))
    assert quorum.quorum_state(client).is_lost is is_lost
    assert (remaining, clock[0]) == ([], elapsed_s)
