"""Finds the delegation token of an HMAC. The metadata log has ids only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.credentials import NO_TOKENS, token_hmac

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.metadata.credentials import Tokens

_COMPUTED_AT_ONCE = 200


class TokenIndex:
    """The HMACs of all tokens, as of the last search. A search adds and removes what changed."""

    __slots__ = ("_hmacs", "_ids", "_indexed", "_secret_key")

    def __init__(self, secret_key: str) -> None:
        self._secret_key = secret_key
        # The tokens that the two dictionaries contain.
        self._indexed: Tokens = NO_TOKENS
        self._ids: dict[bytes, str] = {}
        self._hmacs: dict[str, bytes] = {}

    def find(self, tokens: Tokens, hmac: bytes) -> Generator[None, None, str | None]:
        """Return the id of a token, None if no token has the HMAC; yields after some tokens."""
        if self._indexed is not tokens:
            yield from self._index(tokens)
        return self._ids.get(hmac)

    def _index(self, tokens: Tokens) -> Generator[None, None, None]:
        before = self._hmacs
        hmacs: dict[str, bytes] = {}
        ids: dict[bytes, str] = {}
        for number, token_id in enumerate(tokens):
            hmac = before.get(token_id) or token_hmac(self._secret_key, token_id)
            hmacs[token_id] = hmac
            ids[hmac] = token_id
            if number % _COMPUTED_AT_ONCE == 0:
                yield
        self._indexed, self._hmacs, self._ids = tokens, hmacs, ids
