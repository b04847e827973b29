"""The campaign of `make fuzz`, for a few seconds from a fixed seed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from barnabas.server.configs.configuration import BROKER_KEYS
from barnabas.settings.key import ConfigType
from fuzz import campaign
from fuzz.attacker import Attacker
from fuzz.grammar import SERVED_APIS, Grammar
from fuzz.polite import Reading

FRAMES = 12_000
# Time limit. The campaign ends after a number of frames.
SECONDS = 240
SEED = 20_261_121


def test_requests_of_every_served_api_and_version_are_generated() -> None:

    grammar = Grammar(random.Random(1))
    made = {grammar.frame()[0] for _ in range(6000)}
    assert made == {int(key) for key in SERVED_APIS}


def test_all_features_that_are_off_by_default_are_on() -> None:
    off = {key.name for key in BROKER_KEYS if key.type is ConfigType.BOOLEAN and not key.default}
    # Which nodes, listeners and users there are, and when nodes elect or join.
    others = {"cluster.standalone", "allow.everyone.if.no.acl.found"}
    others |= {"unclean.leader.election.enable", "controller.quorum.auto.join.enable"}
    others |= {name for name in off if name.startswith(("ssl.", "sasl."))}
    assert {name for name in off - others if campaign.SETTINGS.get(name) != "true"} == set()


@pytest.mark.conformance
@pytest.mark.slow
def test_the_broker_survives_hostile_requests(tmp_path: Path) -> None:
    outcome = campaign.run(SECONDS, FRAMES, SEED, tmp_path, restart_s=5)
    assert outcome.problems == []
    # One more kill and restart follows at the end.
    assert outcome.restarts >= 1
    assert outcome.frames >= FRAMES
    assert outcome.costly_inputs >= 10
    assert outcome.polite["sent"] > 20


def test_records_are_read_again_only_after_an_assignment() -> None:
    reading = Reading()
    for number in (0, 1, 2):
        reading.take(number)
    reading.begin_again()
    for number in (1, 2, 3):
        reading.take(number)
    assert (reading.numbers, reading.repeated) == ([0, 1, 2, 3], 2)
    reading.take(2)
    assert reading.numbers == [0, 1, 2, 3, 2]
    reading.begin_again()
    reading.take(7)
    assert reading.numbers[-1] == 7, "a gap stays one after an assignment"


@pytest.mark.conformance
def test_a_dead_broker_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def end_the_broker(attacker: Attacker, _seconds: float, _frames: int | None) -> None:
        raise ConnectionRefusedError("the port is closed")

    monkeypatch.setattr(Attacker, "run", end_the_broker)
    outcome = campaign.run(5, 10, SEED, tmp_path)
    assert any("gone" in problem for problem in outcome.problems)
