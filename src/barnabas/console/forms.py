"""Fields of forms and queries, checked, and the fields of a form that was refused.

A file arrives in a form of type `multipart/form-data`. It becomes a field with the base64 of its
bytes, so that a preview can send it once more as any other field.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl

from barnabas.cli.common.units import duration_ms, utc_ms
from barnabas.console.field_labels import label_of
from barnabas.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from starlette.requests import Request

FORM_TYPE = "application/x-www-form-urlencoded"
MULTIPART_TYPE = "multipart/form-data"
# Larger than the number of records that can be chosen at once. The form of a connector has a field
# for each config of its plug-in.
_FIELDS_MAX = 500
_INT64_MAX = 2**63 - 1
# Python also takes digits of all scripts, and `1_000`.
_NUMBER = re.compile(r"[-+]?\d+", re.ASCII)
# Characters of a refused number in its error.
_SHOWN_MAX = 40
# A preview sends the file again in base64, which must fit into a request.
FILE_BYTES_MAX = 640 * 1024
# The field of a larger file. The other fields of its form are kept.
_TOO_LARGE = "!"


class FormError(ValueError):
    """A field is missing or malformed; the text says which one and what to write.

    Args:
        text: The problem.
        field: The name of the field, at which the form shows the problem; "" for the whole form.
    """

    def __init__(self, text: str, field: str = "") -> None:
        super().__init__(text)
        self.field = field


class Fields:
    """The fields of a form or a query; the last of equal names counts, except for `texts`.

    Args:
        fields: The fields, in order.
        path: The path that the form is sent to; it decides how errors call the fields.
    """

    __slots__ = ("_pairs", "_path", "_values")

    def __init__(
        self, fields: Mapping[str, str] | Iterable[tuple[str, str]], path: str = ""
    ) -> None:
        self._path = path
        pairs = fields.items() if isinstance(fields, Mapping) else fields
        self._pairs: list[tuple[str, str]] = list(pairs)
        self._values: dict[str, str] = dict(self._pairs)

    def label(self, name: str) -> str:
        """Return what the form calls a field."""
        return label_of(self._path, name)

    def text(self, name: str) -> str:
        """Return a field as it was sent; "" if it is missing."""
        return self._values.get(name, "")

    def texts(self, name: str) -> list[str]:
        """Return all fields of a name, such as the checked boxes of a table, without repetition."""
        return list(dict.fromkeys(value for key, value in self._pairs if key == name))

    def file(self, name: str) -> bytes | None:
        """Return the content of an uploaded file; None if none was chosen.

        Raises:
            FormError: The file is too large.
        """
        if self.text(name) == _TOO_LARGE:
            raise FormError(f"the limit of a file is {FILE_BYTES_MAX // 1024} KiB", name)
        try:
            return base64.urlsafe_b64decode(self.text(name)) if self.text(name) else None
        except (binascii.Error, ValueError):
            raise FormError(f"{self.label(name)} is not a file", name) from None

    def stripped(self, name: str) -> str:
        """Return a field without the spaces around it; "" if it is missing."""
        return self.text(name).strip()

    def required(self, name: str) -> str:
        """Return a field that must not be empty.

        Raises:
            FormError: It is empty or missing.
        """
        found = self.stripped(name)
        if not found:
            raise FormError(f"fill in {self.label(name)}", name)
        return found

    def number(self, name: str, default: int | None = None, *, least: int = 0) -> int:
        """Return a whole number from `least` to 2**63-1; `default` if the field is empty.

        Raises:
            FormError: It is no such number, or empty without a default.
        """
        found = self.stripped(name)
        if not found and default is not None:
            return default
        if not _NUMBER.fullmatch(found):
            text = f"{self.label(name)} must be a whole number, not {found[:_SHOWN_MAX]!r}"
            raise FormError(text if found else f"fill in {self.label(name)}", name)
        value = int(found) if len(found) < 21 else _INT64_MAX + 1
        if not least <= value <= _INT64_MAX:
            label = self.label(name)
            text = f"{label} must be a number from {least} on, not {found[:_SHOWN_MAX]}"
            raise FormError(text, name)
        return value

    def moment(self, name: str) -> int:
        """Return a time in milliseconds since 1970.

        The field is ISO 8601, milliseconds, or a length of time such as 7d, which means so long
        ago. A time without a zone is in UTC, as all times of the console.

        Raises:
            FormError: It has none of these formats, or is empty.
        """
        text = self.required(name)
        if text.isascii() and text.isdigit():
            return self.number(name)
        ago = duration_ms(text)
        found = utc_ms(text) if ago is None else SystemClock().wall_ms() - ago
        if found is None:
            hint = (
                "write a time in UTC such as 2026-01-31T12:00, 7d for 7 days ago, or milliseconds"
            )
            raise FormError(f"{self.label(name)}: {hint}", name)
        return max(0, found)

    def duration(self, name: str) -> int:
        """Return a length of time in milliseconds, written with a unit such as 15m or 7d.

        Raises:
            FormError: It is no length of time, or empty.
        """
        text = self.required(name)
        found = duration_ms(text)
        if found is None:
            hint = "write a length of time such as 90s, 15m, 12h or 7d"
            raise FormError(f"{self.label(name)}: {hint}, not {text[:_SHOWN_MAX]!r}", name)
        return found

    def one_of(self, name: str, choices: Collection[str]) -> str:
        """Return a field that has one of some values.

        Raises:
            FormError: It has another value, or is empty.
        """
        found = self.required(name)
        if found not in choices:
            known = ", ".join(choices)
            text = f"{self.label(name)}: choose one of {known}, not {found[:_SHOWN_MAX]}"
            raise FormError(text, name)
        return found

    def has(self, name: str) -> bool:
        """Return whether a box is checked."""
        return bool(self.text(name))

    def all_but(self, *names: str) -> list[tuple[str, str]]:
        """Return the fields as they were sent, without those of these names."""
        return [(name, value) for name, value in self._pairs if name not in names]

    def confirm(self, name: str) -> None:
        """Check that the user typed the name of what is to be deleted.

        Raises:
            FormError: The field `confirm` has another text.
        """
        if self.stripped("confirm") != name:
            raise FormError(f"to confirm, type {name}", "confirm")

    def integers(self, name: str) -> list[int]:
        """Return a list of whole numbers with commas between them, such as broker ids.

        Raises:
            FormError: It is empty or no such list.
        """
        parts = self.required(name).replace(" ", "").split(",")
        if not all(part.isascii() and part.isdigit() and len(part) < 11 for part in parts):
            label = self.label(name)
            text = f"{label} must be numbers with commas between them, such as 1,2,3"
            raise FormError(text, name)
        return [int(part) for part in parts]


class Draft(NamedTuple):
    """What the user typed into a form that was refused, or that waits for a confirmation.

    The page of the form shows it again, so that nothing is typed twice.
    """

    # The path that the form is sent to.
    action: str
    fields: Fields
    # The problem, and the field at which it is shown; "" for none.
    problem: str = ""
    field: str = ""

    def text(self, action: str, name: str, default: object = "") -> object:
        """Return what was typed into a field of the form of this action; else the default."""
        return self.fields.text(name) if self.action == action else default

    def has(self, action: str, name: str, default: bool = False) -> bool:
        """Return whether a box of the form of this action was checked; else the default."""
        return self.fields.has(name) if self.action == action else default

    def chosen(self, action: str, name: str, value: object, default: bool = False) -> bool:
        """Return whether the box with this value was checked; the default for other forms."""
        return str(value) in self.fields.texts(name) if self.action == action else default

    def problem_at(self, action: str, name: str) -> str:
        """Return the problem of a field; "" if it has none."""
        return self.problem if self.action == action and name and self.field == name else ""


NO_DRAFT = Draft("", Fields(()))


def query_fields(request: Request) -> Fields:
    """Return the fields in the address of a request."""
    return _parse(request.url.query, request.scope.get("path", ""))


_BOUNDARY = re.compile(r'boundary="?([^";,]{1,70})"?')


async def form_fields(request: Request) -> Fields:
    """Return the fields of a form. `RequestChecks` has limited its size.

    Raises:
        FormError: The form is malformed.
    """
    body = await request.body()
    kind = request.headers.get("content-type", "")
    if not kind.startswith(MULTIPART_TYPE):
        return _parse(body.decode("utf-8", "replace"), request.scope.get("path", ""))
    found = _BOUNDARY.search(kind)
    if found is None:
        raise FormError("the form has no boundary")
    return Fields(_parts(body, b"--" + found[1].encode()), request.scope.get("path", ""))


def _parse(text: str, path: str) -> Fields:
    try:
        return Fields(parse_qsl(text, keep_blank_values=True, max_num_fields=_FIELDS_MAX), path)
    except ValueError:
        raise FormError(f"a form has at most {_FIELDS_MAX} fields") from None


_NAME = re.compile(r'[; ]name="([^"]*)"')
_FILE_NAME = re.compile(r'[; ]filename="([^"]*)"')


def _parts(body: bytes, delimiter: bytes) -> list[tuple[str, str]]:
    """Return the fields of a form of parts (RFC 7578)."""
    _, *parts = (b"\r\n" + body).split(b"\r\n" + delimiter, _FIELDS_MAX + 1)
    if len(parts) > _FIELDS_MAX:
        raise FormError(f"a form has at most {_FIELDS_MAX} fields")
    found = []
    for part in parts:
        head, _, content = part.partition(b"\r\n\r\n")
        text = head.decode("utf-8", "replace")
        name, file = _NAME.search(text), _FILE_NAME.search(text)
        if part.startswith(b"--") or name is None:
            continue
        if file is None:
            found.append((name[1], content.decode("utf-8", "replace")))
            continue
        # A browser without a chosen file sends an empty one without a name.
        if file[1]:
            is_small = len(content) <= FILE_BYTES_MAX
            text = base64.urlsafe_b64encode(content).decode() if is_small else _TOO_LARGE
            found.append((name[1], text))
    return found
