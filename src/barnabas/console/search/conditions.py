"""What a message must contain to be found: texts, and an expression.

Texts are compared with what a page displays and with the bytes of the record. A masked part of a
record has neither, so it is not found.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from barnabas.console.search.expressions import FAILED, YES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.console.forms import Fields
    from barnabas.console.messages.decoded import Decoded
    from barnabas.console.messages.record_view import DecodedRecord
    from barnabas.console.search.expressions import ExpressionFilter


class Selection(NamedTuple):
    """The records of a slice that fulfill all conditions."""

    records: list[DecodedRecord]
    # Number of records for which the expression failed, and why it did for the first one.
    failed: int = 0
    failure: str = ""


class Conditions(NamedTuple):
    """All conditions; empty ones are fulfilled by every record."""

    # Contained in the key, the value, or the value of a header.
    text: str = ""
    key: str = ""
    value: str = ""
    # A header's name, and a part of its value.
    header_name: str = ""
    header_value: str = ""
    # Whether texts are compared without regard to case.
    ignores_case: bool = False
    # An expression in CEL.
    expression: str = ""

    @classmethod
    def of(cls, query: Fields) -> Conditions:
        """Return the conditions in an address."""
        name, _, value = query.stripped("header").partition("=")
        return cls(
            text=query.text("text"),
            key=query.text("key"),
            value=query.text("value"),
            header_name=name.strip(),
            header_value=value.strip(),
            ignores_case=query.text("case") == "ignore",
            expression=query.stripped("filter"),
        )

    def __bool__(self) -> bool:
        """Whether a record can fail to fulfill the conditions."""
        return any((self.text, self.key, self.value, self.header_name, self.expression))

    async def select(
        self, records: Sequence[DecodedRecord], expressions: ExpressionFilter
    ) -> Selection:
        """Return the records that fulfill the expression, of those that contain all texts.

        Raises:
            ExpressionError: The expression is malformed.
            FilterTooSlowError: The expression exceeded a limit of time or memory.
        """
        if not self.expression or not records:
            return Selection(list(records))
        verdicts = await expressions.evaluate(self.expression, records)
        selected = [
            record
            for record, result in zip(records, verdicts.results, strict=True)
            if result == YES
        ]
        return Selection(selected, verdicts.results.count(FAILED), verdicts.failure)

    def fits_texts(self, record: DecodedRecord) -> bool:
        """Return whether the record contains all texts."""
        if self.key and not self._contains(record.key, self.key):
            return False
        if self.value and not self._contains(record.value, self.value):
            return False
        if self.header_name and not any(
            name == self.header_name and self._contains(each, self.header_value)
            for name, each in record.headers
        ):
            return False
        if not self.text:
            return True
        parts = (record.key, record.value, *(each for _, each in record.headers))
        return any(self._contains(part, self.text) for part in parts)

    def _contains(self, part: Decoded, wanted: str) -> bool:
        if part.is_large:
            return self._large_contains(part, wanted)
        if not self.ignores_case:
            raw = wanted.encode("utf-8", "replace")
            if part.raw is not None and raw in part.raw:
                return True
            return any(wanted in text for text in _texts(part))
        wanted = wanted.casefold()
        texts = [] if part.raw is None else [part.raw.decode("utf-8", "replace")]
        return any(wanted in text.casefold() for text in chain(texts, _texts(part)))

    def _large_contains(self, part: Decoded, wanted: str) -> bool:
        """Return whether a large text, or the bytes as hexadecimal digits, contain a text."""
        if part.kind == "bytes":
            raw = wanted.encode("utf-8", "replace")
            if not self.ignores_case and part.raw is not None and raw in part.raw:
                return True
            wanted = wanted.replace(" ", "")
        if self.ignores_case:
            wanted = wanted.casefold()
        before = ""
        for piece in part.pieces():
            text = before + (piece.casefold() if self.ignores_case else piece)
            if wanted in text:
                return True
            before = text[-len(wanted) :]
        return not wanted


def _texts(part: Decoded) -> Iterator[str]:
    """Yield the displayed text; then JSON without spaces and without escaped characters."""
    yield part.text
    if part.kind == "json":
        yield msgspec.json.encode(part.content).decode()
