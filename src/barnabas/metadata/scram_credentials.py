"""SCRAM credentials in the image (KIP-900), which stores their records as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.retained_records import scram_identity
from barnabas.protocol.records.user_scram_credential_record import UserScramCredentialRecord
from barnabas.sasl.scram_keys import ScramCredential

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.metadata.retained_records import RetainedRecords
    from barnabas.sasl.scram_keys import ScramMechanism


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
