"""Bases of serializers and deserializers that look schemas up in a registry.

A lookup blocks, which an event loop must not do. Therefore the asyncio clients use the functions of
`without_blocking`: where the registry must be asked, they raise `SchemaLookup`. The client runs the
lookup in a thread, and calls the function again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from barnabas.runtime.clock import SystemClock
from barnabas.serializers.caches import BoundedCache, RecentFailures
from barnabas.serializers.errors import CONFLICT, RegistryError, SchemaError
from barnabas.serializers.schema import schema_id_of, topic_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.serializers.registry import SchemaRegistry
    from barnabas.serializers.schema import Schema, SubjectName

# Part of a record.
Part: TypeAlias = Literal["key", "value"]
# Limit for schemas of one deserializer, and for topics of one serializer.
_CACHE_SIZE = 1000


class SchemaLookup(Exception):  # noqa: N818 - a request of the asyncio clients, not an error
    """A schema is needed. `run()` gets it and blocks; then the same call succeeds."""

    def __init__(self, run: Callable[[], object]) -> None:
        super().__init__("a schema must be looked up before this call")
        self.run = run


class SerializerOptions(TypedDict, total=False):
    """The way in which a serializer finds its schema in the registry.

    Attributes:
        auto_register: Whether to register the schema (the default). Otherwise, it must be
            registered already.
        normalize: Whether the registry compares schemas in a normal form.
        subject_name: The strategy that names the subject; by default `topic_name`.
    """

    auto_register: bool
    normalize: bool
    subject_name: SubjectName


class SchemaSerializer(ABC):
    """Base of the serializers with a schema registry: `value_serializer=` of a producer.

    Args:
        registry: The registry.
        schema: The schema; None for the latest one of the subject, when the first value is written.
        options: See `SerializerOptions`.
    """

    def __init__(
        self, registry: SchemaRegistry, schema: Schema | None, options: SerializerOptions
    ) -> None:
        unknown = set(options) - set(SerializerOptions.__annotations__)
        if unknown:
            raise TypeError(f"unknown option of a serializer: {', '.join(sorted(unknown))}")
        self.registry = registry
        self._schema = schema
        self._options = options
        self._by_topic: BoundedCache[tuple[str, Part], TopicSerializer] = BoundedCache(_CACHE_SIZE)

    def registered(self, subject: str) -> tuple[int, Schema]:
        """Return the schema to write with, and its id; register it if it is not registered yet.

        Raises:
            RegistryError: The registry was not reached, or refused the schema.
        """
        try:
            return self._registered(subject)
        except RegistryError as error:
            if error.status != CONFLICT:
                raise
            try:
                reason = self.conflict(subject)
            except (RegistryError, SchemaError):
                raise error from None
            text = f"{error}. {reason}" if reason else str(error)
            raise RegistryError(text, error.status, error.code) from None

    def conflict(self, subject: str) -> str | None:
        """Return why the schema is not compatible with the latest one; None if that is unknown.

        Raises:
            RegistryError: The registry was not reached.
            SchemaError: The latest schema is invalid.
        """
        return None

    def _registered(self, subject: str) -> tuple[int, Schema]:
        if self._schema is None:
            latest = self.registry.latest(subject)
            return latest.schema_id, latest.schema
        normalize = self._options.get("normalize", False)
        if self._options.get("auto_register", True):
            return self.registry.register(subject, self._schema, normalize=normalize), self._schema
        found = self.registry.find(subject, self._schema, normalize=normalize)
        return found.schema_id, self._schema

    @property
    @abstractmethod
    def record_name(self) -> str:
        """The full name of the record type; "" if its schema has none."""

    @abstractmethod
    def encoder(self, subject: str) -> Callable[[Any], bytes]:
        """Look up or register the schema; return a function from a value to a record's bytes.

        Raises:
            RegistryError: The registry was not reached, or refused the schema.
            SchemaError: The schema is invalid.
        """

    def for_topic(self, topic: str, part: Part) -> TopicSerializer:
        """Return the serializer of the keys or values of one topic. It does not block yet."""
        found = self._by_topic.get((topic, part))
        if found is None:
            subject_name = self._options.get("subject_name", topic_name)
            subject = subject_name(topic, part, self.record_name)
            found = TopicSerializer(self, subject)
            self._by_topic.put((topic, part), found)
        return found

    def serialize(self, topic: str, value: Any, part: Part = "value") -> bytes | None:
        """Return the bytes of a value; None (a tombstone) for None.

        Raises:
            RegistryError: The registry was not reached, or refused the schema.
            SchemaError: The value does not fit its schema.
        """
        return self.for_topic(topic, part)(value)


class TopicSerializer:
    """Serializes the keys or the values of one topic; the first value looks the schema up."""

    __slots__ = ("_encode", "_serializer", "subject")

    def __init__(self, serializer: SchemaSerializer, subject: str) -> None:
        self._serializer = serializer
        self.subject = subject
        # None until the schema is known.
        self._encode: Callable[[Any], bytes] | None = None

    def look_up(self) -> None:
        """Look up or register the schema. This blocks."""
        self._encode = self._serializer.encoder(self.subject)

    def __call__(self, value: Any) -> bytes | None:
        """Return the bytes of a value; None for None."""
        if value is None:
            return None
        if self._encode is None:
            self.look_up()
            assert self._encode is not None
        return self._encode(value)

    def without_blocking(self, value: Any) -> bytes | None:
        """Return the bytes of a value.

        Raises:
            SchemaLookup: The schema is not known yet.
        """
        if value is None:
            return None
        if self._encode is None:
            raise SchemaLookup(self.look_up)
        return self._encode(value)


class SchemaDeserializer(ABC):
    """Base of the deserializers with a schema registry: `value_deserializer=` of a consumer.

    Args:
        registry: The registry.
    """

    def __init__(self, registry: SchemaRegistry) -> None:
        self.registry = registry
        self._decoders: BoundedCache[int, Callable[[bytes], Any]] = BoundedCache(_CACHE_SIZE)
        self._failures = RecentFailures(SystemClock())

    @abstractmethod
    def decoder(self, schema_id: int, schema: Schema) -> Callable[[bytes], Any]:
        """Return a function from the bytes of a record, with the wire format, to its value.

        Raises:
            RegistryError: A referenced schema was not found.
            SchemaError: The schema is invalid, or does not fit the reader's.
        """

    def __call__(self, data: bytes | None) -> Any:
        """Return the value of a record; None for None. A new schema id is looked up; this blocks.

        Raises:
            WireFormatError: The bytes do not begin with a schema id, or do not fit the schema.
            UnknownSchemaError: The registry has no such schema.
            SchemaMismatchError: The writer's schema does not fit the reader's.
            RegistryError: The registry was not reached, or refused the request.
        """
        if data is None:
            return None
        schema_id = schema_id_of(data)
        decode = self._decoders.get(schema_id) or self.look_up(schema_id)
        return decode(data)

    def without_blocking(self, data: bytes | None) -> Any:
        """Return the value of a record; None for None.

        Raises:
            SchemaLookup: The schema of the record is not known yet.
            SchemaError: The record cannot be deserialized, or the lookup of its schema has failed
                within the last second.
            RegistryError: The registry has refused the lookup within the last second.
        """
        if data is None:
            return None
        schema_id = schema_id_of(data)
        decode = self._decoders.get(schema_id)
        if decode is None:
            self._failures.check(schema_id)
            raise SchemaLookup(lambda: self.look_up(schema_id))
        return decode(data)

    def knows(self, schema_id: int) -> bool:
        """Return whether records with this schema id are deserialized without a lookup."""
        return self._decoders.get(schema_id) is not None

    def look_up(self, schema_id: int) -> Callable[[bytes], Any]:
        """Get the schema with an id, and return its decoder. This blocks.

        Raises:
            SchemaError: The schema is unknown, invalid or does not fit the reader's.
            RegistryError: The registry was not reached, or refused the request.
        """
        self._failures.check(schema_id)
        try:
            decode = self.decoder(schema_id, self.registry.schema(schema_id))
        except (SchemaError, RegistryError) as error:
            self._failures.add(schema_id, error)
            raise
        self._decoders.put(schema_id, decode)
        return decode
