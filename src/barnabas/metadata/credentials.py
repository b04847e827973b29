"""Delegation tokens and SCRAM credentials in the image.

*Delegation tokens* (KIP-48): The log has no secret. The HMAC of a token is the hash of its id with
the secret key of the cluster, `delegation.token.secret.key`. It is the password of the token. After
a change of the key, the tokens stay in the image, and have other HMACs.

*SCRAM credentials* (KIP-900): The image stores their records. A later record of the same mechanism
and user replaces a record.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final, TypeAlias

from barnabas.metadata.persistent_map import PersistentMap
from barnabas.sasl.scram_keys import ScramCredential

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.protocol.records.security import (
        DelegationTokenRecord,
        UserScramCredentialRecord,
    )
    from barnabas.sasl.scram_keys import ScramMechanism

    Tokens: TypeAlias = PersistentMap[str, DelegationTokenRecord]
    # By the key of `credential_key`.
    Credentials: TypeAlias = PersistentMap[str, UserScramCredentialRecord]
    # The new record by key; None removes a record.
    TokenChanges: TypeAlias = dict[str, DelegationTokenRecord | None]
    CredentialChanges: TypeAlias = dict[str, UserScramCredentialRecord | None]

NO_TOKENS: Final[Tokens] = PersistentMap()
NO_CREDENTIALS: Final[Credentials] = PersistentMap()
# Configuration key of the secret key. Without a key, or with an empty one, there are no tokens.
SECRET_KEY: Final = "delegation.token.secret.key"  # noqa: S105 - not a password


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


def credential_key(mechanism: int, name: str) -> str:
    """Return the key of a user's credential for a mechanism (Kafka's number)."""
    return f"{mechanism}/{name}"


def find_credential(
    stored: Credentials, mechanism: ScramMechanism, name: str
) -> ScramCredential | None:
    """Return the credential of a user; None if there is none."""
    record = stored.get(credential_key(mechanism, name))
    return None if record is None else _credential(record)


def credentials(stored: Credentials) -> Iterator[tuple[int, ScramCredential]]:
    """Yield the number of the mechanism and the credential of each user, in no order."""
    return ((record.mechanism, _credential(record)) for record in stored.values())


def _credential(record: UserScramCredentialRecord) -> ScramCredential:
    return ScramCredential(
        bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
    )
