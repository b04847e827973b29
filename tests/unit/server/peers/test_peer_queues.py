"""Requests to the leaders of partitions: leaders, limits, and errors that stop no sender."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from barnabas.network.network_error import NetworkError, NetworkErrorKind
from barnabas.server.peers.peer_queues import PeerQueues, PeerSettings
from unit.server.peers.senders import BAD, NO_LEADER, OTHER, SENDERS, Sender

if TYPE_CHECKING:
    from collections.abc import Callable

# More than any retries of a sender take.
RETRIES_MS = 60_000


@pytest.fixture(params=SENDERS, ids=lambda cls: cls.__name__)
def sender(request: pytest.FixtureRequest) -> Sender:
    cls: Callable[[], Sender] = request.param
    return cls()


def test_parts_that_wait_are_sent_together(sender: Sender) -> None:
    for number in range(4):
        sender.send(number)
    sender.respond()
    assert sender.ended == dict.fromkeys(range(4), True)
    assert sender.channel.sent == 2 or (sender.repeats and sender.channel.sent <= 2)


def test_a_part_without_a_leader_fails_or_waits_for_one(sender: Sender) -> None:
    sender.leader = NO_LEADER
    sender.send(0)
    sender.respond()
    assert sender.channel.sent == 0
    assert sender.ended == ({} if sender.waits_for_leader else {0: False})
    sender.leader = OTHER
    for _ in range(5):
        sender.world.run_for(RETRIES_MS / 5)
        sender.respond()
    assert sender.ended == {0: sender.waits_for_leader}


@pytest.mark.parametrize("cls", SENDERS)
def test_the_parts_that_wait_for_a_broker_are_limited(
    cls: type[Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    create = PeerQueues.__init__

    def create_short(
        self: PeerQueues[Any, Any], by: Any, settings: PeerSettings, *rest: Any
    ) -> None:
        create(self, by, msgspec.structs.replace(settings, queue_max=2), *rest)

    monkeypatch.setattr(PeerQueues, "__init__", create_short)
    sender = cls()
    sender.send(0)
    sender.run()
    for number in (1, 2, 3):
        sender.send(number)
    sender.run()
    sender.channel.respond(sender.response)
    sender.run()
    sender.channel.respond(sender.response)
    assert [number for number in (0, 1, 2, 3) if sender.ended.get(number)] == [0, 1, 2]
    for _ in range(5):
        sender.world.run_for(RETRIES_MS / 5)
        sender.respond()
    assert sender.ended[3] == sender.waits_for_leader


@pytest.mark.parametrize("order", [(BAD,), (BAD, 1, 2, 3), (1, BAD, 2), (1, 2, 3, 4, BAD)])
def test_a_part_that_cannot_be_encoded_fails_alone(sender: Sender, order: tuple[int, ...]) -> None:
    sender.send(0)
    sender.run()
    for number in order:
        sender.send(number)
    sender.respond()
    good = [number for number in (0, *order) if number != BAD]
    assert [number for number in good if not sender.ended.get(number)] == []
    assert sender.ended.get(BAD) is (None if sender.repeats else False)
    sender.send(5)
    sender.respond()
    assert sender.ended[5]


def test_an_error_of_the_channel_does_not_stop_the_sender(sender: Sender) -> None:
    sender.channel.error = RuntimeError("scripted")
    sender.send(0)
    sender.run()
    sender.send(1)
    sender.respond()
    assert sender.ended[1]
    assert sender.ended.get(0) is (None if sender.repeats else False)


@pytest.mark.parametrize("kind", NetworkErrorKind)
def test_a_failed_request_does_not_stop_the_sender(sender: Sender, kind: NetworkErrorKind) -> None:
    sender.send(0)
    sender.run()
    sender.send(1)
    _, on_response = sender.channel.pending.pop()
    on_response(None, NetworkError(kind, "scripted"))
    sender.respond()
    assert sender.ended[1]
    for _ in range(10):
        sender.world.run_for(RETRIES_MS / 10)
        sender.respond()
    assert 0 in sender.ended


@pytest.mark.parametrize("response", [object(), None], ids=["of another class", "none"])
def test_a_response_without_sense_does_not_stop_the_sender(
    sender: Sender, response: object
) -> None:
    sender.send(0)
    sender.run()
    sender.send(1)
    sender.channel.respond(lambda _: response)
    sender.respond()
    assert sender.ended[1]


def test_a_late_second_response_is_ignored(sender: Sender) -> None:
    sender.send(0)
    sender.run()
    request, on_response = sender.channel.pending[0]
    sender.send(1)
    sender.respond()
    on_response(sender.response(request), None)
    assert sender.ended == {0: True, 1: True}


def test_an_error_of_a_callback_affects_no_other_part(sender: Sender) -> None:
    sender.send(0)
    sender.run()
    sender.send(1)
    sender.send(2)
    sender.channel.respond(sender.response)
    sender.error = RuntimeError("scripted")
    sender.respond()
    assert sender.ended == {0: True, 2: True}
    sender.send(3)
    sender.respond()
    assert sender.ended[3]


def test_a_violated_invariant_is_raised_and_stops_no_sender(sender: Sender) -> None:
    sender.error = AssertionError("scripted")
    sender.send(0)
    with pytest.raises(AssertionError, match="scripted"):
        sender.respond()
    sender.send(1)
    sender.respond()
    assert sender.ended == {1: True}


def test_a_queue_whose_parts_all_fail_does_not_hold_the_loop(sender: Sender) -> None:
    sender.send(0)
    sender.run()
    for number in range(1, 9):
        sender.send(number)
    sender.run()
    channel, scheduler = sender.channel, sender.world.scheduler
    attempts: list[int] = []

    def fail(*_: object) -> None:
        attempts.append(scheduler.events_run)
        raise RuntimeError("scripted")

    request, on_response = channel.pending.pop()
    channel.send = fail  # type: ignore[method-assign]
    on_response(sender.response(request), None)
    sender.run()
    # Each attempt is in a turn of its own.
    assert len(set(attempts)) == len(attempts) > len(range(1, 9))
