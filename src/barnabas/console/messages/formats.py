"""The formats of keys and values, and the choice among them.

The reader's choice comes first, then that of the operator for the topic. Without either, a record
of an internal topic is decoded by its own schema, a value with a schema id by that schema, and
other bytes by what they look like.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from fnmatch import translate
from typing import TYPE_CHECKING, NamedTuple

from barnabas.console.forms import FormError
from barnabas.console.messages.binary_formats import (
    CBOR,
    MESSAGE_PACK,
    decode_cbor,
    decode_message_pack,
    guess_binary,
)
from barnabas.console.messages.decoded import (
    KEY,
    VALUE,
    Decoded,
    FormatError,
    decode_as_json,
    decode_as_text,
    decode_plain,
)
from barnabas.console.messages.internal_topics import decode_internal
from barnabas.console.messages.xml_format import XML, decode_xml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from barnabas.client.fetch.record_set import ConsumerRecord
    from barnabas.console.forms import Fields
    from barnabas.console.messages.schema_decoding import SchemaDecoder

AUTO, SCHEMA = "auto", "schema"
_REASON_CHARACTERS = 200
# Threads that decode share the lock of the interpreter with the event loop.
_THREADS_MAX = 2


class FormatRule(NamedTuple):
    """How the keys or the values of some topics are decoded."""

    # A pattern of names, as shells have them.
    topic: str
    # KEY or VALUE.
    part: str
    decode: Callable[[bytes], Decoded]


class Formats(NamedTuple):
    """The formats that a reader chose for keys and for values."""

    key: str = AUTO
    value: str = AUTO

    @classmethod
    def of(cls, query: Fields) -> Formats:
        """Return the formats that an address names in `key_format` and `value_format`.

        Raises:
            FormError: There is no such format.
        """
        return cls(_format(query, "key_format"), _format(query, "value_format"))

    @property
    def fields(self) -> dict[str, str]:
        """The fields of an address that choose these formats."""
        chosen = {"key_format": self.key, "value_format": self.value}
        return {name: each for name, each in chosen.items() if each != AUTO}


AUTOMATIC = Formats()


def _format(query: Fields, name: str) -> str:
    found = query.stripped(name) or AUTO
    if found not in FORMATS:
        known = ", ".join(FORMATS)
        raise FormError(f"{query.label(name)}: choose one of {known}, not {found!r}", name)
    return found


@dataclass(frozen=True, slots=True)
class _OrPlain:
    """A decoder that shows bytes of another format as they are, with the reason."""

    decode: Callable[[bytes], Decoded]

    def __call__(self, data: bytes) -> Decoded:
        try:
            return self.decode(data)
        except FormatError as error:
            return decode_plain(data).noted(str(error)[:_REASON_CHARACTERS])


def _as_bytes(data: bytes) -> Decoded:
    return Decoded("bytes", data, data, len(data))


# The formats that need neither a topic nor a registry. All can be pickled.
DECODERS: dict[str, Callable[[bytes], Decoded]] = {
    "json": decode_as_json,
    "text": decode_as_text,
    "xml": _OrPlain(decode_xml),
    "msgpack": _OrPlain(decode_message_pack),
    "cbor": _OrPlain(decode_cbor),
    "hex": _as_bytes,
}
# The formats that a reader may choose, and their names on pages.
FORMATS = {
    AUTO: "automatic",
    SCHEMA: "schema id",
    "json": "JSON",
    "text": "text",
    "xml": XML,
    "msgpack": MESSAGE_PACK,
    "cbor": CBOR,
    "hex": "bytes",
}


class Decoders:
    """All that a console can decode.

    Args:
        schemas: Decodes by the schemas of a registry, if there is one.
        rules: The formats that the operator chose for topics; the first that fits counts.
    """

    def __init__(
        self, schemas: SchemaDecoder | None = None, rules: Sequence[FormatRule] = ()
    ) -> None:
        self._schemas = schemas
        # For threads that decode; others wait.
        self.turns = asyncio.Semaphore(_THREADS_MAX)
        self._rules = [(re.compile(translate(each.topic)), each) for each in rules]

    def close(self) -> None:
        """End the threads that look up schemas."""
        if self._schemas is not None:
            self._schemas.close()

    async def look_up(self, records: Iterable[ConsumerRecord], formats: Formats) -> None:
        """Look up the schemas of the keys and values whose format needs them."""
        if self._schemas is None:
            return
        needed = [each in (AUTO, SCHEMA) for each in formats]
        await self._schemas.look_up(
            part
            for record in records
            for part, is_needed in zip((record.key, record.value), needed, strict=True)
            if is_needed
        )

    def decode(self, record: ConsumerRecord, formats: Formats) -> tuple[Decoded, Decoded, str]:
        """Return the key and the value of a record, not masked, and what the record does.

        The words are "" for all but records of internal topics.
        """
        internal = decode_internal(record) if AUTO in formats else None
        key, value, words = (None, None, "") if internal is None else internal
        if key is None or formats.key != AUTO:
            key = self._part(record, KEY, formats.key)
        if value is None or formats.value != AUTO:
            value = self._part(record, VALUE, formats.value)
        return key, value, words

    def _part(self, record: ConsumerRecord, part: str, chosen: str) -> Decoded:
        data: bytes | None = record.key if part == KEY else record.value
        if not data:
            return decode_plain(data)
        if chosen in DECODERS:
            return DECODERS[chosen](data)
        if chosen == AUTO:
            for pattern, rule in self._rules:
                if rule.part == part and pattern.match(record.topic):
                    return rule.decode(data)
        found = self._schemas.decode(data) if self._schemas is not None else None
        if found is not None:
            return found
        if chosen == SCHEMA:
            has_registry = self._schemas is not None
            return decode_plain(data).noted("no schema id" if has_registry else "no registry")
        return guess(data)


def guess(data: bytes) -> Decoded:
    """Return bytes by what they look like: JSON, XML, text, MessagePack, CBOR, or only bytes."""
    found = decode_plain(data)
    if found.kind == "text" and data.lstrip()[:1] == b"<":
        try:
            return decode_xml(data)
        except FormatError:
            return found
    if found.kind == "bytes":
        return guess_binary(data) or found
    return found
