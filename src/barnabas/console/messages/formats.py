"""The formats of keys and values, and the choice among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.console.forms import Fields, FormError
from barnabas.console.messages.decoded import Decoded, decode_as_text, decode_plain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.client.fetch.record_set import ConsumerRecord
    from barnabas.console.messages.schema_decoding import SchemaDecoder

AUTO = "auto"
# The formats that a reader may choose, and their names on pages.
FORMATS = {
    AUTO: "automatic",
    "schema": "by its schema",
    "json": "JSON",
    "text": "text",
    "hex": "bytes",
}


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


AUTOMATIC = Formats()


def _format(query: Fields, name: str) -> str:
    found = query.stripped(name) or AUTO
    if found not in FORMATS:
        raise FormError(f"{name} must be one of {', '.join(FORMATS)}, not {found!r}")
    return found


class Decoders:
    """All that a console can decode.

    Args:
        schemas: Decodes by the schemas of a registry, if there is one.
    """

    def __init__(self, schemas: SchemaDecoder | None = None) -> None:
        self._schemas = schemas

    async def look_up(self, records: Iterable[ConsumerRecord], formats: Formats) -> None:
        """Look up the schemas of the keys and values whose format needs them."""
        if self._schemas is None:
            return
        needed = [each in (AUTO, "schema") for each in formats]
        await self._schemas.look_up(
            part
            for record in records
            for part, is_needed in zip((record.key, record.value), needed, strict=True)
            if is_needed
        )

    def decode(self, record: ConsumerRecord, formats: Formats) -> tuple[Decoded, Decoded]:
        """Return the key and the value of a record, not masked."""
        return self._part(record.key, formats.key), self._part(record.value, formats.value)

    def _part(self, data: bytes | None, chosen: str) -> Decoded:
        if not data:
            return decode_plain(data)
        match chosen:
            case "text":
                return decode_as_text(data)
            case "hex":
                return Decoded("bytes", data, data, len(data))
            case "json":
                return decode_plain(data)
        found = self._schemas.decode(data) if self._schemas is not None else None
        return decode_plain(data) if found is None else found
