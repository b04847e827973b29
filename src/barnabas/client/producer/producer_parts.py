"""Objects that a user passes to a producer: serializers and interceptors.

They cannot be values of a properties file. The producer removes them from its keyword arguments
before it parses the rest as configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.client.producer.interceptors import Interceptors, ProducerInterceptor
from barnabas.client.producer.serializing import RecordSerializer, record_serializer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ProducerParts", "take_parts"]


@dataclass(frozen=True, slots=True)
class ProducerParts:
    """The objects that the user passed to one producer."""

    key_serializer: RecordSerializer | None = None
    value_serializer: RecordSerializer | None = None
    interceptors: Interceptors | None = None


def take_parts(given: Mapping[str, Any]) -> tuple[ProducerParts, dict[str, Any]]:
    """Split a producer's keyword arguments into its parts and its configuration.

    Raises:
        ClientConfigError: a part has the wrong type.
    """
    left = dict(given)
    chain: Sequence[ProducerInterceptor] = left.pop("interceptors", None) or ()
    parts = ProducerParts(
        record_serializer("key", left.pop("key_serializer", None)),
        record_serializer("value", left.pop("value_serializer", None)),
        Interceptors(chain) if chain else None,
    )
    return parts, left
