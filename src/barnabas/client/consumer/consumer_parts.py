"""What a user plugs into a consumer: deserializers and interceptors.

These are objects, not values of a properties file, so they are taken out of the keyword arguments
before the rest is checked as configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.client.consumer.deserializing import Deserializing
from barnabas.client.errors import ClientConfigError
from barnabas.client.shielded import Shielded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.client.consumer.consumer_records import ConsumerRecords
    from barnabas.client.group_offsets import CommittedOffset
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["ConsumerInterceptor", "ConsumerInterceptors", "ConsumerParts", "take_consumer_parts"]


class ConsumerInterceptor(Protocol):
    """The user's own (KIP-42); what it raises is logged and otherwise changes nothing."""

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        """The records that go on to the user: the same, or others."""
        ...

    def on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> object:
        """These were committed."""
        ...

    def close(self) -> object:
        """The consumer is closed."""
        ...


class ConsumerInterceptors:
    """All interceptors of a consumer, in their order."""

    __slots__ = ("_chain",)

    def __init__(self, chain: Sequence[ConsumerInterceptor] = ()) -> None:
        self._chain = tuple(chain)

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        """The records as the last of them gives them."""
        for interceptor in self._chain:
            with Shielded(interceptor):
                records = interceptor.on_consume(records)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Tell them what was committed."""
        for interceptor in self._chain:
            with Shielded(interceptor):
                interceptor.on_commit(offsets)

    def close(self) -> None:
        """Close them all."""
        for interceptor in self._chain:
            with Shielded(interceptor):
                interceptor.close()


@dataclass(frozen=True, slots=True)
class ConsumerParts:
    """The user's objects of one consumer."""

    deserializing: Deserializing
    interceptors: ConsumerInterceptors


def take_consumer_parts(given: Mapping[str, Any]) -> tuple[ConsumerParts, dict[str, Any]]:
    """The parts, and the keyword arguments that are left.

    Raises:
        ClientConfigError: something that is not what its name says.
    """
    left = dict(given)
    deserializing = Deserializing(
        _deserializer(left, "key_deserializer"), _deserializer(left, "value_deserializer")
    )
    chain: Sequence[ConsumerInterceptor] = left.pop("interceptors", None) or ()
    return ConsumerParts(deserializing, ConsumerInterceptors(chain)), left


def _deserializer(given: dict[str, Any], name: str) -> Callable[[bytes], Any] | None:
    found = given.pop(name, None)
    if found is None or isinstance(found, str):
        # The name of a Java class in a properties file means nothing here.
        return None
    if not callable(found):
        raise ClientConfigError(f"{name}={found!r} cannot be called with bytes")
    deserializer: Callable[[bytes], Any] = found
    return deserializer
