"""Delegation tokens and SCRAM credentials in the image.

*Delegation tokens* (KIP-48): The log has no secret. The HMAC of a token is the hash of its id with
the secret key of the cluster, `delegation.token.secret.key`. It is the password of the token. After
a change of the key, the tokens stay in the image, and have other HMACs.

*SCRAM credentials* (KIP-900): The image stores their records without interpreting them, because a
snapshot must contain these records too. Each record is stored under its identity. A later record
with the same identity replaces it, and a remove record deletes it.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from barnabas.metadata.persistent_map import PersistentMap
from barnabas.protocol.records.security import UserScramCredentialRecord
from barnabas.sasl.scram_keys import ScramCredential

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from barnabas.protocol.schema import Record
    from barnabas.sasl.scram_keys import ScramMechanism


if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.protocol.records.security import DelegationTokenRecord

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


# Kafka's numbers of metadata record types.
USER_SCRAM_CREDENTIAL = 11
REMOVE_USER_SCRAM_CREDENTIAL = 22


def scram_identity(mechanism: int, name: str) -> str:
    """Return the identity of a SCRAM credential."""
    return f"scram/{mechanism}/{name}"


# The identity of a record. A remove record has the identity of the records that it removes.
_KEY_OF: dict[int, Callable[[Any], str]] = {
    USER_SCRAM_CREDENTIAL: lambda record: scram_identity(record.mechanism, record.name),
    REMOVE_USER_SCRAM_CREDENTIAL: lambda record: scram_identity(record.mechanism, record.name),
}
_REMOVERS = frozenset({REMOVE_USER_SCRAM_CREDENTIAL})


class RetainedRecords:
    """Records by identity, each with the version in which it was written."""

    def __init__(self) -> None:
        self._by_key: PersistentMap[str, tuple[Record, int]] = PersistentMap()

    def __iter__(self) -> Iterator[tuple[Record, int]]:
        return (self._by_key[key] for key in sorted(self._by_key))

    def __len__(self) -> int:
        return len(self._by_key)

    def get(self, identity: str) -> Record | None:
        """Return the record with this identity; None if there is none."""
        found = self._by_key.get(identity)
        return None if found is None else found[0]

    def identities(self) -> Iterator[str]:
        """Yield the identity of each record."""
        return iter(self._by_key)

    def evolve(self, changes: Mapping[str, tuple[Record, int] | None]) -> RetainedRecords:
        """Return these records with `changes` applied; None removes a record."""
        records = RetainedRecords()
        records._by_key = self._by_key.evolve(
            {key: value for key, value in changes.items() if value is not None},
            [key for key, value in changes.items() if value is None],
        )
        return records


def is_retained(record: Record) -> bool:
    """Return whether the image stores records of this type here."""
    return record.__record_type__ in _KEY_OF


def retained_change(record: Record, version: int) -> tuple[str, tuple[Record, int] | None]:
    """Return the identity of a record, and the value to store; None for a remove record."""
    number = record.__record_type__
    return _KEY_OF[number](record), None if number in _REMOVERS else (record, version)


def find_credential(
    retained: RetainedRecords, mechanism: ScramMechanism, name: str
) -> ScramCredential | None:
    """Return the credential of a user; None if there is none."""
    record = retained.get(scram_identity(mechanism, name))
    return _credential(record) if isinstance(record, UserScramCredentialRecord) else None


def credentials(retained: RetainedRecords) -> Iterator[tuple[int, ScramCredential]]:
    """Yield the number of the mechanism and the credential of each user, in no order."""
    for identity in retained.identities():
        record = retained.get(identity)
        if isinstance(record, UserScramCredentialRecord):
            yield record.mechanism, _credential(record)


def _credential(record: UserScramCredentialRecord) -> ScramCredential:
    return ScramCredential(
        bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
    )
