"""Names of subjects with their contexts, and numbers of versions.

A context is a separate space of subjects and ids. The name `:.staging:orders-value` is the subject
`orders-value` in the context `.staging`. Subjects of the default context `.` have no prefix.
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.registry.errors import invalid_subject, invalid_version

DEFAULT_CONTEXT = "."
# The prefix that stands for all contexts, in searches for subjects.
ANY_CONTEXT = ":*:"
LATEST = -1
_VERSION_MAX = 2**31 - 1
_DIGITS_MAX = 10
_DELIMITER = ":"
# Names that Confluent's registry uses inside.
_RESERVED = ("__GLOBAL", "__EMPTY")


class Subject(NamedTuple):
    """A subject: its context and its name there; the name is empty for a whole context."""

    context: str
    name: str

    @property
    def qualified(self) -> str:
        """The name with its context, except for the default one."""
        if self.context == DEFAULT_CONTEXT:
            return self.name
        return f"{_DELIMITER}{self.context}{_DELIMITER}{self.name}"


def split(qualified: str) -> Subject:
    """Return the context and the name of a subject."""
    if not qualified.startswith(_DELIMITER + DEFAULT_CONTEXT):
        return Subject(DEFAULT_CONTEXT, qualified)
    context, _, name = qualified[1:].partition(_DELIMITER)
    return Subject(context, name)


def context_of(qualified: str | None) -> str:
    """Return the context of a subject; the default one for None."""
    return DEFAULT_CONTEXT if qualified is None else split(qualified).context


def in_context(context: str, given: str) -> str:
    """Return the qualified name of a subject that a request names within a context.

    Args:
        context: The context of the request's path; it only counts for names without a context.
        given: The name in the request.
    """
    if given.startswith((_DELIMITER + DEFAULT_CONTEXT, ANY_CONTEXT)):
        found = split(given)
    else:
        found = Subject(context, given)
    return found.qualified


def check_subject(qualified: str) -> None:
    """Check the name of a subject to which something is written.

    Raises:
        RegistryError: The name is empty, reserved, or contains control characters.
    """
    name = split(qualified).name
    if not name or name in _RESERVED:
        raise invalid_subject(qualified)
    check_scope(qualified)


def check_scope(qualified: str | None) -> None:
    """Check the name of a subject or a context whose settings are changed.

    Raises:
        RegistryError: The name contains control characters, or stands for all contexts.
    """
    name = qualified or ""
    is_control = any(ord(each) < 0x20 or 0x7F <= ord(each) < 0xA0 for each in name)
    if is_control or name.startswith(ANY_CONTEXT):
        raise invalid_subject(name)


def parse_version(text: str) -> int:
    """Return the number of a version; `LATEST` for `latest` and -1.

    Raises:
        RegistryError: The text is neither a positive number nor one of these.
    """
    stripped = text.strip()
    if stripped.lower() == "latest":
        return LATEST
    digits = stripped.removeprefix("-").removeprefix("+")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX
    if not is_number or len(stripped) - len(digits) > 1:
        raise invalid_version(text)
    number = int(stripped)
    if number != LATEST and not 0 < number <= _VERSION_MAX:
        raise invalid_version(text)
    return number
