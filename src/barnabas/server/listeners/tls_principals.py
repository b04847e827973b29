"""Principals of connections with TLS, from the subjects of the clients' certificates.

The rules of `ssl.principal.mapping.rules` (KIP-371; Kafka: SslPrincipalMapper) are tried in their
order, and the first that matches the whole subject gives the name:

- `DEFAULT` gives the subject itself.
- `RULE:PATTERN/REPLACEMENT/` replaces the pattern, a regular expression. `$1` in the replacement is
  the first group. `L` or `U` at the end makes the name lower or upper case.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.network.principal import ANONYMOUS, Principal, UnknownPrincipalError
from barnabas.runtime.tls.distinguished_name import MalformedCertificateError, subject_of
from barnabas.server.configs.tls_config import ListenerValues, UnusableKeyStoreError
from barnabas.settings.pattern import PatternError, compile_with_captures

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.network.connection import Connection
    from barnabas.settings.definition import ParsedConfig


_KEY = "ssl.principal.mapping.rules"


class TlsPrincipals:
    """Determines the principals of clients of one listener."""

    __slots__ = ("_rules",)

    def __init__(self, config: ParsedConfig, given: Mapping[str, str], listener: str) -> None:
        """Parse the rules.

        Raises:
            ConfigError: the rules are malformed.
        """
        text = ListenerValues(config, given, listener).value(_KEY)
        assert isinstance(text, str), text
        try:
            self._rules = PrincipalRules(text)
        except PrincipalRulesError as error:
            raise UnusableKeyStoreError(_KEY, str(error)) from None

    def identify(self, connection: Connection) -> Principal:
        """Return the client's principal.

        Raises:
            UnknownPrincipalError: no rule matches the certificate.
        """
        stream = connection.stream
        certificate = None if stream is None else stream.peer_certificate
        if certificate is None:
            return ANONYMOUS
        try:
            return Principal(self._rules.name(subject_of(certificate)))
        except (NoMatchingRuleError, MalformedCertificateError) as error:
            raise UnknownPrincipalError(str(error)) from None


_DEFAULT, _RULE = "DEFAULT", "RULE:"
_REFERENCE = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)


class PrincipalRulesError(ValueError):
    """The rules are malformed."""


class NoMatchingRuleError(ValueError):
    """No rule matches the subject."""


class _Rule(msgspec.Struct, frozen=True):
    # Compiled regular expression. None for DEFAULT.
    pattern: Any = None
    replacement: str = ""
    change_case: Callable[[str], str] | None = None

    def apply(self, subject: str) -> str | None:
        """Return the name, or None if the rule does not match."""
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        name: str = self.pattern.sub(self._expand, subject)
        return name if self.change_case is None else self.change_case(name)

    def _expand(self, match: Any) -> str:
        """Return the replacement with the groups of the match, as Java does."""
        groups = self.pattern.groups

        def insert(reference: re.Match[str]) -> str:
            if reference[1] is not None:
                return reference[1]
            digits = reference[2]
            # Use the longest sequence of digits that is the number of a group.
            for length in range(len(digits), 0, -1):
                if int(digits[:length]) <= groups:
                    return (match.group(int(digits[:length])) or "") + digits[length:]
            return reference[0]

        return _REFERENCE.sub(insert, self.replacement)


class PrincipalRules:
    """Maps subjects to names."""

    __slots__ = ("_rules",)

    def __init__(self, text: str) -> None:
        """Parse the value of `ssl.principal.mapping.rules`.

        Raises:
            PrincipalRulesError: the value is malformed.
        """
        self._rules = _parse(text)

    def name(self, subject: str) -> str:
        """Return the name of a principal.

        Raises:
            NoMatchingRuleError: no rule matches.
        """
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        raise NoMatchingRuleError(f"no rule of ssl.principal.mapping.rules matches {subject}")


def _parse(text: str) -> list[_Rule]:
    rules: list[_Rule] = []
    rest = text.strip()
    while rest:
        if rest.startswith(_RULE):
            rule, rest = _parse_rule(rest)
            rules.append(rule)
        elif rest.startswith(_DEFAULT):
            rules.append(_Rule())
            rest = rest.removeprefix(_DEFAULT)
        elif not rest.startswith(","):
            raise PrincipalRulesError(f"{rest!r} is neither DEFAULT nor RULE:PATTERN/REPLACEMENT/")
        rest = rest.lstrip()
        if rest and not rest.startswith(","):
            raise PrincipalRulesError(f"unexpected {rest!r} after a rule")
        rest = rest.removeprefix(",").lstrip()
    return rules


def _parse_rule(text: str) -> tuple[_Rule, str]:
    """Return the first rule, and the text after it."""
    pattern, rest = _part(text, len(_RULE))
    replacement, rest = _part(rest, 0)
    change_case = {"L": str.lower, "U": str.upper}.get(rest[:1])
    return _Rule(_compile(pattern), replacement, change_case), rest[1:] if change_case else rest


def _part(text: str, start: int) -> tuple[str, str]:
    """Return the text up to the next slash without a backslash before it, and the rest."""
    position = start
    while position < len(text):
        if text[position] == "\\":
            position += 1
        elif text[position] == "/":
            return text[start:position], text[position + 1 :]
        position += 1
    raise PrincipalRulesError(f"{text!r} has no slash after pattern and replacement")


def _compile(pattern: str) -> Any:
    try:
        return compile_with_captures(pattern)
    except PatternError as error:
        raise PrincipalRulesError(f"{pattern!r} is not a regular expression: {error}") from None
