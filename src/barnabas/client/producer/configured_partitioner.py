"""The partitioner that the key `partitioner.class` of a producer names.

Kafka's own partitioners have the same effect here under the names of their Java classes. Any other
class of Java is refused: the records would be in other partitions than those of a Java producer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.errors import ClientConfigError
from barnabas.client.producer.partitioner import (
    CallablePartitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.client.config import ClientConfig
    from barnabas.client.producer.partitioner import TopicPartitioner
    from barnabas.runtime.rng import Rng

__all__ = ["PARTITIONERS", "check_partitioner", "partitioner_for_topic"]

_DEFAULT = ""
_ROUND_ROBIN = "round_robin"
# Kafka's default partitioner, as with partitioner.ignore.keys=true.
_WITHOUT_KEYS = "uniform_sticky"
_JAVA = "org.apache.kafka.clients.producer"
# What a name stands for. Kafka 4 has `RoundRobinPartitioner` only, but files of older clients have
# the others too.
PARTITIONERS = {
    "": _DEFAULT,
    "default": _DEFAULT,
    "sticky": _DEFAULT,
    "murmur2_random": _DEFAULT,
    "round_robin": _ROUND_ROBIN,
    f"{_JAVA}.RoundRobinPartitioner": _ROUND_ROBIN,
    f"{_JAVA}.UniformStickyPartitioner": _WITHOUT_KEYS,
    f"{_JAVA}.internals.DefaultPartitioner": _DEFAULT,
}


def check_partitioner(config: ClientConfig) -> ClientConfig:
    """Return the configuration of a producer, whose partitioner is a known one.

    Other clients do not check the key: a file may be that of all clients of an application.

    Raises:
        ClientConfigError: The partitioner is neither a known name nor a function.
    """
    given = config.partitioner_class
    if given is None or callable(given) or (isinstance(given, str) and given in PARTITIONERS):
        return config
    key = config.spell("partitioner_class")
    names = ", ".join(filter(None, PARTITIONERS))
    raise ClientConfigError(
        f"{key}={given} is neither one of {names} nor a function of "
        f"(key, partitions, available). Classes of Java cannot be used: choose the partition in "
        f"the program"
    )


def partitioner_for_topic(
    config: ClientConfig, rng: Rng, loads: Callable[[Sequence[int]], Sequence[int]]
) -> TopicPartitioner:
    """Create a partitioner for the records of one topic.

    Args:
        config: The configuration of a producer, for which `check_partitioner` was called.
        rng: Source of random numbers.
        loads: Returns the number of pending batches of each given partition (KIP-794).
    """
    given = config.partitioner_class
    if callable(given):
        return CallablePartitioner(given)
    kind = PARTITIONERS[str(given or "")]
    if kind == _ROUND_ROBIN:
        return RoundRobinPartitioner(rng.randint(0, 0x7FFFFFFF))
    return StickyPartitioner(
        rng,
        config.batch_size,
        ignore_keys=config.partitioner_ignore_keys or kind == _WITHOUT_KEYS,
        loads=loads if config.partitioner_adaptive_partitioning_enable else None,
    )
