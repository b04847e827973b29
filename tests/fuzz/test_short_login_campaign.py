"""The attacks of clients without a login, with few connections and from a fixed seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz import login_campaign
from fuzz.login_attacks import FORBIDDEN, Logins, authenticate, handshake

CONNECTIONS = 250
# Time limit. The campaign ends after a number of connections.
SECONDS = 200
SEED = 20_261_123


@pytest.mark.conformance
@pytest.mark.slow
def test_the_broker_stands_clients_without_a_login(tmp_path: Path) -> None:
    outcome = login_campaign.run(SECONDS, SEED, tmp_path, CONNECTIONS)
    assert outcome.problems == []
    assert outcome.connections == CONNECTIONS
    assert len(outcome.by_attack) > 15
    assert outcome.polite["sent"] > 20


@pytest.mark.conformance
def test_an_answer_without_a_login_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attack_after_a_login(_logins: Logins, wire: login_campaign.Wire) -> str:
        wire.send(handshake("PLAIN", 1) + authenticate(b"\0alice\0alice-secret", 2))
        # Metadata 1 with an empty client id, for no topics.
        wire.send(b"\0\0\0\x0e\0\x03\0\x01" + FORBIDDEN + b"\0\0" + b"\0\0\0\0")
        while FORBIDDEN not in wire.received:
            assert wire.receive_frame() is not None
        return "a right password"

    monkeypatch.setattr(Logins, "attack", attack_after_a_login)
    monkeypatch.setattr(login_campaign, "TLS_SHARE", 0.0)
    monkeypatch.setattr(login_campaign, "CLOSED_WITHIN_S", 0.0)
    outcome = login_campaign.run(SECONDS, SEED, tmp_path, 1)
    assert any("was answered" in problem for problem in outcome.problems)
