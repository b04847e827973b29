"""Requests to other brokers: errors of a part, of the channel and of a response stop no sender."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.network.network_error import NetworkError, NetworkErrorKind
from unit.server.peers.senders import BAD, SENDERS, Sender

if TYPE_CHECKING:
    from collections.abc import Callable

# More than any retries of a sender take.
RETRIES_MS = 60_000


@pytest.fixture(params=SENDERS, ids=lambda cls: cls.__name__)
def sender(request: pytest.FixtureRequest) -> Sender:
    cls: Callable[[], Sender] = request.param
    return cls()


def after(sender: Sender, *successes: int) -> dict[int, bool]:
    """Return how parts ended of which these succeeded and all others failed."""
    return {number: number in successes for number in sender.ended}


def test_parts_that_wait_are_sent_together(sender: Sender) -> None:
    for number in range(4):
        sender.send(number)
    sender.respond()
    assert sender.ended == dict.fromkeys(range(4), True)
    assert sender.channel.sent == 2 or (sender.repeats and sender.channel.sent <= 2)


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
