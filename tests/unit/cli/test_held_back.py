"""The transaction that holds back the last stable offset: the requests and their order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from barnabas.cli.admin.held_back import HeldBack, gather_held_back
from barnabas.client.admin.partitions import ActiveProducer
from barnabas.client.admin.transactions import TransactionDescription, TransactionListing
from barnabas.client.errors import ClientError, DisconnectedError
from barnabas.client.topic_partition import TopicPartition

TP = TopicPartition("orders", 0)
SILENCE = DisconnectedError("h:3", "no answer")


def producer(producer_id: int, start: int) -> ActiveProducer:
    return ActiveProducer(producer_id, 3, 9, 1_000, 1, start)


class Admin:
    """A scripted cluster; `producers` has a response for each request."""

    def __init__(self, *producers: list[ActiveProducer] | ClientError) -> None:
        self.producers = list(producers)
        self.listed: list[TransactionListing] | ClientError = []
        self.described: dict[str, TransactionDescription | ClientError] = {}

    def describe_producers(self, _partitions: object, *, once: bool) -> dict[Any, Any]:
        assert once
        return {TP: self.producers.pop(0)}

    def list_transactions(self, _producers: object) -> list[TransactionListing]:
        if isinstance(self.listed, ClientError):
            raise self.listed
        return self.listed

    def describe_transactions(self, _names: object) -> dict[str, Any]:
        return self.described


def gather(admin: Admin) -> HeldBack:
    client: Any = SimpleNamespace(admin=admin)
    return gather_held_back(client, TP, 4, 9)


def test_the_oldest_open_transaction_comes_first() -> None:
    admin = Admin([producer(1, 8), producer(2, -1), producer(3, 4)])
    admin.listed = [TransactionListing("a", 1, "Ongoing"), TransactionListing("c", 3, "Ongoing")]
    admin.described = {
        name: TransactionDescription(1, "Ongoing", number, 3, 60_000, 900, (TP,))
        for name, number in (("a", 1), ("c", 3))
    }
    held = gather(admin)
    assert [each.producer_id for each in held.producers] == [3, 1]
    assert held.first is not None
    assert not held.is_hanging(held.first)
    assert held.owners[3].transactional_id == "c"


def test_a_transaction_that_ends_between_the_requests_is_not_hanging() -> None:
    held = gather(Admin([producer(3, 4)], []))
    assert held.first is None


def test_a_transaction_that_is_still_open_afterwards_is_hanging() -> None:
    held = gather(Admin([producer(3, 4)], [producer(3, 4)]))
    assert held.first is not None
    assert held.is_hanging(held.first)


def test_the_next_transaction_of_the_same_producer_is_another_one() -> None:
    held = gather(Admin([producer(3, 4)], [producer(3, 7)]))
    assert held.first is None


def test_silent_coordinators_leave_the_result_unknown() -> None:
    admin = Admin([producer(3, 4)])
    admin.listed = SILENCE
    held = gather(admin)
    assert held.error is SILENCE
    assert held.first is not None
    assert not held.is_hanging(held.first)


def test_without_a_response_of_the_leader_no_owner_is_reported() -> None:
    assert gather(Admin(SILENCE)).first is None
