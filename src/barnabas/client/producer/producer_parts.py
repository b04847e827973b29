"""Objects that a user passes to a producer: serializers, a partitioner, interceptors.

They cannot be values of a properties file. The producer removes them from its keyword arguments
before it parses the rest as configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.client.errors import ClientConfigError
from barnabas.client.producer.interceptors import Interceptors, ProducerInterceptor
from barnabas.client.producer.partitioner import (
    CallablePartitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
    TopicPartitioner,
)
from barnabas.client.producer.serializing import RecordSerializer, record_serializer

if TYPE_CHECKING:
    from barnabas.client.config import ClientConfig
    from barnabas.runtime.rng import Rng

__all__ = ["PARTITIONERS", "ProducerParts", "take_parts"]

PartitionFunction = Callable[[bytes | None, Sequence[int], Sequence[int]], int]
_ROUND_ROBIN = "round_robin"
# Names of the two built-in partitioners in properties files and in other clients.
PARTITIONERS = {
    "default": "",
    "sticky": "",
    "murmur2_random": "",
    "round_robin": _ROUND_ROBIN,
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": _ROUND_ROBIN,
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "",
}


@dataclass(frozen=True, slots=True)
class ProducerParts:
    """The objects that the user passed to one producer."""

    key_serializer: RecordSerializer | None = None
    value_serializer: RecordSerializer | None = None
    # "" means Kafka's default partitioner.
    partitioner: PartitionFunction | str = ""
    interceptors: Interceptors | None = None

    def partitioner_for_topic(
        self, config: ClientConfig, rng: Rng, loads: Callable[[Sequence[int]], Sequence[int]]
    ) -> TopicPartitioner:
        """Create a partitioner for the records of one topic.

        Args:
            config: the producer's configuration.
            rng: source of random numbers.
            loads: returns the number of pending batches of each given partition (KIP-794).
        """
        if callable(self.partitioner):
            return CallablePartitioner(self.partitioner)
        if self.partitioner == _ROUND_ROBIN:
            return RoundRobinPartitioner(rng.randint(0, 0x7FFFFFFF))
        return StickyPartitioner(
            rng,
            config.batch_size,
            ignore_keys=config.partitioner_ignore_keys,
            loads=loads if config.partitioner_adaptive_partitioning_enable else None,
        )


def take_parts(given: Mapping[str, Any]) -> tuple[ProducerParts, dict[str, Any]]:
    """Split a producer's keyword arguments into its parts and its configuration.

    Raises:
        ClientConfigError: a part has the wrong type, or the partitioner is unknown.
    """
    left = dict(given)
    partitioner = left.pop("partitioner", None) or left.pop("partitioner_class", None) or ""
    if isinstance(partitioner, str):
        if partitioner and partitioner not in PARTITIONERS:
            names = ", ".join(name for name in PARTITIONERS if "." not in name)
            raise ClientConfigError(
                f"partitioner={partitioner} is neither one of {names} nor a function of "
                f"(key, partitions, available)"
            )
        partitioner = PARTITIONERS.get(partitioner, "")
    elif not callable(partitioner):
        raise ClientConfigError(f"partitioner={partitioner!r} is not callable")
    chain: Sequence[ProducerInterceptor] = left.pop("interceptors", None) or ()
    parts = ProducerParts(
        record_serializer("key", left.pop("key_serializer", None)),
        record_serializer("value", left.pop("value_serializer", None)),
        partitioner,
        Interceptors(chain) if chain else None,
    )
    return parts, left
