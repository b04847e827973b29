"""JAAS configuration in one line, as in Kafka's `sasl.jaas.config`.

The form is `CLASS FLAG KEY=VALUE ...;`. A value is a word, or a text in double or single quotes
with backslash escapes. Comments as in Java are skipped.
"""

from __future__ import annotations

import re

import msgspec

from barnabas.settings.key import ConfigError

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

_FORM = 'CLASS required KEY="VALUE" ...; with one login module'
_FLAGS = ("required", "requisite", "sufficient", "optional")
# Each token: skipped text, a quoted text, a word, or one of `=` and `;`. No part can match
# in two ways, so that the time is linear in the length.
_TOKEN = re.compile(
    r"""(?P<skipped>\s+|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)
      |"(?P<double>(?:[^"\\\n]|\\.)*)"
      |'(?P<single>(?:[^'\\\n]|\\.)*)'
      |(?P<word>[\w$.+\-]+)
      |(?P<mark>[=;])""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_ESCAPE = re.compile(r"\\(.)")


class LoginModule(msgspec.Struct, frozen=True):
    """The login module of a JAAS configuration."""

    class_name: str
    options: dict[str, str]

    @property
    def username(self) -> str | None:
        """User as which this side logs in."""
        return self.options.get("username")

    @property
    def password(self) -> str | None:
        """Password with which this side logs in."""
        return self.options.get("password")

    def users(self) -> dict[str, str]:
        """Return the passwords of the users of PLAIN, from `user_NAME="PASSWORD"`."""
        prefix = "user_"
        return {
            key.removeprefix(prefix): value
            for key, value in self.options.items()
            if key.startswith(prefix)
        }


def parse_jaas(key: str, text: str) -> LoginModule:
    """Parse the value of a key.

    Args:
        key: name of the configuration key, for errors.
        text: the value. Errors do not show it, because it has passwords.

    Raises:
        ConfigError: the text does not have the form.
    """
    tokens = _tokens(key, text)
    if len(tokens) < 3 or tokens[-1] != (";", True):
        raise _wrong(key, _FORM)
    class_name, flag = tokens[0][0], tokens[1][0]
    if flag.lower() not in _FLAGS:
        raise _wrong(key, f"{_FORM}; the second word is one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    for at in range(0, len(rest), 3):
        entry = rest[at : at + 3]
        if len(entry) != 3 or entry[0][1] or entry[1] != ("=", True) or entry[2][1]:
            raise _wrong(key, _FORM)
        options[entry[0][0]] = entry[2][0]
    return LoginModule(class_name, options)


def _tokens(key: str, text: str) -> list[tuple[str, bool]]:
    """Return the tokens, each with whether it is a mark (`=` or `;`)."""
    found: list[tuple[str, bool]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _wrong(key, f"{_FORM} (character {at + 1} does not fit; quote the value)")
        at = match.end()
        kind = match.lastgroup
        if kind == "skipped":
            continue
        token = match[kind or 0]
        if kind in ("double", "single"):
            token = _ESCAPE.sub(_unescaped, token)
        found.append((token, kind == "mark"))
    return found


def _unescaped(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[1], match[1])


def _wrong(key: str, allowed: str) -> ConfigError:
    return ConfigError(key, "[hidden]", allowed)
