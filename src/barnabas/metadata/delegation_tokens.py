"""Delegation tokens in the image (KIP-48): their records by token id, and the keys made from them.

The log has no secret. The HMAC of a token is the hash of its id with the secret key of the cluster,
`delegation.token.secret.key`. It is the password of the token. After a change of the key, the
tokens stay in the image, and have other HMACs.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final, TypeAlias

from barnabas.metadata.persistent_map import PersistentMap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.protocol.records.delegation_token_record import DelegationTokenRecord

    Tokens: TypeAlias = PersistentMap[str, DelegationTokenRecord]
    # The new record of a token by token id; None removes a token.
    TokenChanges: TypeAlias = dict[str, DelegationTokenRecord | None]

NO_TOKENS: Final[Tokens] = PersistentMap()
# Configuration key of the secret key. Without a key, or with an empty one, there are no tokens.
SECRET_KEY: Final = "delegation.token.secret.key"  # noqa: S105 - not a password


def evolve_tokens(tokens: Tokens, changes: Mapping[str, DelegationTokenRecord | None]) -> Tokens:
    """Return the tokens with `changes` applied."""
    return tokens.evolve(
        {token_id: record for token_id, record in changes.items() if record is not None},
        [token_id for token_id, record in changes.items() if record is None],
    )


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """Return the HMAC of a token: 64 bytes."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def is_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    """Return whether a token is past its expiry, or past its maximum lifetime.

    Args:
        token: the token.
        now_ms: wall clock, in ms since 1970.
    """
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


def principal_parts(principal: str) -> tuple[str, str]:
    """Return type and name of a principal of a token, which is TYPE:NAME."""
    kind, _, name = principal.partition(":")
    return kind, name
