"""Tokens from a file, as an agent or Kubernetes mounts them (Kafka: FileJwtRetriever, KIP-768).

`sasl.oauthbearer.token.endpoint.url` names the file as `file:///PATH`. The file is read again for
each new token, so that the agent can replace it.

A program may get its configuration from other people, who must not read its files: the login sends
the token to a broker. Kafka allows only the files of a Java system property. Here, a file must
contain a JSON Web Token, and an environment variable can limit the files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

from barnabas.runtime.disk import RealDisk
from barnabas.runtime.process import environment
from barnabas.sasl.errors import SaslError
from barnabas.sasl.token_login import Token, expiry_of
from barnabas.sasl.unsecured_token import claims_of

if TYPE_CHECKING:
    from collections.abc import Mapping

# Comma-separated paths. If it is set, no other file is read.
ALLOWED_FILES = "BARNABAS_OAUTHBEARER_ALLOWED_FILES"
# A token has a few kilobytes.
_BYTES_MAX = 1 << 20
_DOTS = 2


class TokenFile(msgspec.Struct, frozen=True):
    """A file with a JSON Web Token."""

    path: str
    extensions: dict[str, str] = msgspec.field(default_factory=dict)

    def __call__(self, now_ms: int) -> Token:
        """Read the token.

        Raises:
            SaslError: the file cannot be read or contains no token. The text does not quote it.
        """
        disk = RealDisk()
        try:
            # A pipe or device has the size 0, and perhaps no end.
            if not 0 < disk.size(self.path) <= _BYTES_MAX:
                raise SaslError(f"{self.path} does not have the size of a token", is_transient=True)
            data = disk.read(self.path)
        except OSError as error:
            reason = f"no token in {self.path}: {error.strerror or error}"
            raise SaslError(reason, is_transient=True) from None
        text = data.decode("ascii", "replace").strip()
        if text.count(".") != _DOTS or not claims_of(text):
            # An agent may be writing the file.
            raise SaslError(f"{self.path} contains no JSON Web Token", is_transient=True)
        return Token(text, expiry_of(text), self.extensions)


def is_file_url(url: str) -> bool:
    """Return whether a URL names a file."""
    return url.lower().startswith("file:")


def token_file(
    url: str, extensions: dict[str, str], variables: Mapping[str, str] | None = None
) -> TokenFile:
    """Return the source of tokens that a URL of a file names.

    Args:
        url: file:///PATH.
        extensions: extensions that are sent with each token.
        variables: the environment; that of the process if None.

    Raises:
        ValueError: the URL names no local file by its absolute path, or a file that is not allowed.
    """
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not path.startswith("/") or "\0" in path:
        raise ValueError("a file is named by its absolute path: file:///PATH")
    disk = RealDisk()
    listed = (environment() if variables is None else variables).get(ALLOWED_FILES)
    if listed is not None:
        allowed = {disk.absolute(each.strip()) for each in listed.split(",") if each.strip()}
        if disk.absolute(path) not in allowed:
            raise ValueError(f"the environment variable {ALLOWED_FILES} does not list this file")
    return TokenFile(path, extensions)
