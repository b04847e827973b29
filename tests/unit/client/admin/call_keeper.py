"""The call that an admin plan makes, for tests that encode and decode it themselves."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from barnabas.client.admin.sender import AdminCall
from barnabas.client.topic_partition import TopicPartition


class CallKeeper:
    """An `AdminSender` that keeps the call of a plan."""

    timeout_ms = 1000
    call: AdminCall[Any]

    def send(self, _to: object, call: AdminCall[Any]) -> Generator[None, None, None]:
        self.call = call
        yield

    def send_to_leaders(
        self,
        partitions: list[TopicPartition],
        call_for: Callable[[list[TopicPartition]], AdminCall[Any]],
    ) -> Generator[None, None, None]:
        return self.send(None, call_for(partitions))


def call_of(plan: Callable[..., Generator[Any, Any, Any]], *args: Any, **kwargs: Any) -> Any:
    """Return the first call that a plan makes."""
    sender = CallKeeper()
    next(plan(sender, *args, **kwargs))
    return sender.call
