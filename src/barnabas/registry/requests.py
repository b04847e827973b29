"""Bodies of requests: members, their types, and the errors for anything else.

Confluent's registry answers 400 for text that is not JSON and for members of the wrong type, and
422 for a missing body. Unknown members are ignored. Numbers and booleans are accepted as text.
"""

from __future__ import annotations

from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from barnabas.registry.errors import UNPROCESSABLE, RegistryError
from barnabas.registry.merging import (
    DEFAULT_METADATA,
    DEFAULT_RULES,
    GROUP,
    OVERRIDE_METADATA,
    OVERRIDE_RULES,
)
from barnabas.registry.records import AVRO, RULES, rules_of
from barnabas.registry.schemas import Reference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BAD_REQUEST = 400
_INT_MAX = 2**31 - 1
# Members of a configuration that Confluent's registry applies, and this one does not.
_UNSUPPORTED_CONFIGS = (
    "alias",
    "compatibilityPolicy",
    "validateFields",
)
_CONFIG_OBJECTS = (DEFAULT_METADATA, OVERRIDE_METADATA, DEFAULT_RULES, OVERRIDE_RULES)


class SchemaRequest(NamedTuple):
    """A schema to register, to look up or to check."""

    text: str
    schema_type: str = AVRO
    references: tuple[Reference, ...] = ()
    # Only in an import; None otherwise.
    id: int | None = None
    version: int | None = None
    # Metadata and rule set, as members of the stored record.
    more: Mapping[str, Any] = MappingProxyType({})

    @property
    def rules(self) -> str:
        """Metadata and rule set as part of the content."""
        return rules_of(self.more)


class ConfigRequest(NamedTuple):
    """A change of a configuration; None keeps the present value."""

    level: str | None
    normalize: bool | None
    # The compatibility group, and defaults and overrides of metadata and rule sets.
    more: Mapping[str, Any] = MappingProxyType({})


def read_schema(body: bytes) -> SchemaRequest:
    """Return the schema in a body.

    Raises:
        RegistryError: The body is malformed.
    """
    members = _Members(body, "schema")
    text = members.text("schema") or ""
    schema_type = members.text("schemaType") or AVRO
    given = members.value("references")
    if not isinstance(given, list | NoneType):
        raise _wrong_type("references", "a list")
    references = tuple(_reference(each) for each in given or ())
    schema_id, version = members.number("id"), members.number("version")
    more = {name: found for name in RULES if (found := members.object(name))}
    return SchemaRequest(
        text,
        schema_type.upper(),
        references,
        None if schema_id is None or schema_id < 0 else schema_id,
        None if version is None or version <= 0 else version,
        more,
    )


def _reference(given: object) -> Reference:
    members = _Members.of(given, "references")
    name, subject = members.text("name"), members.text("subject")
    version = members.number("version")
    if not name or not subject:
        raise RegistryError(UNPROCESSABLE, "a reference needs a name, a subject and a version")
    return Reference(name, subject, -1 if version is None else version)


def read_config(body: bytes) -> ConfigRequest:
    """Return the change of a configuration in a body.

    Raises:
        RegistryError: The body is malformed.
    """
    members = _Members(body, "config")
    members.refuse(_UNSUPPORTED_CONFIGS)
    level, normalize = members.text("compatibility"), members.flag("normalize")
    more: dict[str, Any] = {name: members.object(name) for name in _CONFIG_OBJECTS}
    more[GROUP] = members.text(GROUP)
    given = {name: value for name, value in more.items() if value is not None}
    return ConfigRequest(None if level is None else level.upper(), normalize, given)


def read_mode(body: bytes) -> str:
    """Return the mode in a body; an empty text without one.

    Raises:
        RegistryError: The body is malformed.
    """
    members = _Members(body, "mode")
    mode = members.text("mode")
    return (mode or "").upper()


class _Members:
    """The members of a JSON object; each is taken once."""

    def __init__(self, body: bytes, what: str) -> None:
        if not body.strip():
            raise RegistryError(UNPROCESSABLE, f"the {what} request may not be null")
        try:
            given = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RegistryError(_BAD_REQUEST, f"the body is not JSON: {error}") from None
        if given is None:
            raise RegistryError(UNPROCESSABLE, f"the {what} request may not be null")
        self._take(given, what)

    @classmethod
    def of(cls, given: object, what: str) -> _Members:
        """Return the members of a value inside a body."""
        made = cls.__new__(cls)
        made._take(given, what)
        return made

    def _take(self, given: object, what: str) -> None:
        if not isinstance(given, dict):
            raise _wrong_type(what, "an object")
        self._left: dict[str, Any] = given

    def value(self, name: str) -> Any:
        """Take a member; None if it is missing or null."""
        return self._left.pop(name, None)

    def text(self, name: str) -> str | None:
        """Take a text; numbers and booleans become text."""
        found = self.value(name)
        if isinstance(found, dict | list):
            raise _wrong_type(name, "a text")
        if isinstance(found, bool):
            return "true" if found else "false"
        return None if found is None else str(found)

    def number(self, name: str) -> int | None:
        """Take a whole number; a text of digits is one, too."""
        found = self.value(name)
        if isinstance(found, str):
            digits = found.strip().removeprefix("-")
            if digits.isascii() and digits.isdigit() and len(digits) <= len(str(_INT_MAX)):
                found = int(found)
        if isinstance(found, float) and found.is_integer():
            found = int(found)
        is_number = isinstance(found, int) and not isinstance(found, bool)
        if found is None:
            return None
        if not (is_number and -_INT_MAX <= found <= _INT_MAX):
            raise _wrong_type(name, "a whole number")
        return int(found)

    def refuse(self, names: Sequence[str]) -> None:
        """Refuse members with a value, which would have no effect."""
        for name in names:
            if self.value(name):
                raise RegistryError(UNPROCESSABLE, f"Unrecognized field: {name}")

    def flag(self, name: str) -> bool | None:
        """Take a boolean; the texts `true` and `false` are booleans, too."""
        found = self.value(name)
        if isinstance(found, str):
            found = {"true": True, "false": False}.get(found.lower(), found)
        if found is not None and not isinstance(found, bool):
            raise _wrong_type(name, "a boolean")
        return found

    def object(self, name: str) -> dict[str, Any] | None:
        """Take an object."""
        found = self.value(name)
        if found is not None and not isinstance(found, dict):
            raise _wrong_type(name, "an object")
        return found


def _wrong_type(name: str, wanted: str) -> RegistryError:
    return RegistryError(_BAD_REQUEST, f"Cannot deserialize value: {name} must be {wanted}")
