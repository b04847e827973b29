"""Fields of forms and queries, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

# The form of a connector has a field for each config of its plug-in.
_FIELDS_MAX = 500
_INT64_MAX = 2**63 - 1


class FormError(ValueError):
    """A field is missing or malformed; the text says which one and what to write."""


class Fields:
    """The fields of a form or a query, by name; the last of equal names counts."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def text(self, name: str) -> str:
        """Return a field as it was sent; "" if it is missing."""
        return self._values.get(name, "")

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
            raise FormError(f"fill in {name}")
        return found

    def number(self, name: str, default: int | None = None, *, least: int = 0) -> int:
        """Return a whole number from `least` to 2**63-1; `default` if the field is empty.

        Raises:
            FormError: It is no such number, or empty without a default.
        """
        found = self.stripped(name)
        if not found and default is not None:
            return default
        try:
            value = int(found) if len(found) < 21 else _INT64_MAX + 1
        except ValueError:
            raise FormError(f"{name} must be a whole number, not {found!r}") from None
        if not least <= value <= _INT64_MAX:
            raise FormError(f"{name} must be a number from {least} on, not {found}")
        return value

    def has(self, name: str) -> bool:
        """Return whether a box is checked."""
        return bool(self.text(name))

    def all_but(self, *names: str) -> dict[str, str]:
        """Return the fields as they were sent, without those of these names."""
        return {name: value for name, value in self._values.items() if name not in names}

    def confirm(self, name: str) -> None:
        """Check that the user typed the name of what is to be deleted.

        Raises:
            FormError: The field `confirm` has another text.
        """
        if self.stripped("confirm") != name:
            raise FormError(f"to confirm, type {name}")

    def integers(self, name: str) -> list[int]:
        """Return a list of whole numbers with commas between them, such as broker ids.

        Raises:
            FormError: It is empty or no such list.
        """
        parts = self.required(name).replace(" ", "").split(",")
        if not all(part.isascii() and part.isdigit() and len(part) < 11 for part in parts):
            raise FormError(f"{name} must be numbers with commas between them, such as 1,2,3")
        return [int(part) for part in parts]


def query_fields(request: Request) -> Fields:
    """Return the fields in the address of a request."""
    return _parse(request.url.query)


async def form_fields(request: Request) -> Fields:
    """Return the fields of a form. `RequestChecks` has limited its size.

    Raises:
        FormError: The form is malformed.
    """
    return _parse((await request.body()).decode("utf-8", "replace"))


def _parse(text: str) -> Fields:
    try:
        return Fields(dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_FIELDS_MAX)))
    except ValueError:
        raise FormError(f"a form has at most {_FIELDS_MAX} fields") from None
