"""Stand-ins for unknown users, made of the stored credentials."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from barnabas.metadata.credentials import NO_CREDENTIALS, credential_key
from barnabas.protocol.records.security import UserScramCredentialRecord
from barnabas.runtime.clock import SystemClock
from barnabas.sasl.scram_keys import ScramMechanism, dummy_credential
from barnabas.server.security.sasl.mechanisms import ImageUsers, TokenUsers

if TYPE_CHECKING:
    from barnabas.metadata.credentials import Credentials

SHA_256, SHA_512 = ScramMechanism
CLUSTER_ID = "the-cluster"


def stored(**iterations: int) -> Credentials:
    """Credentials of users by name, with their iterations."""
    changes = {}
    for number, (name, count) in enumerate(iterations.items()):
        record = UserScramCredentialRecord(
            name=name,
            mechanism=SHA_256,
            salt=b"salt",
            stored_key=bytes([number]) * 32,
            server_key=bytes([number + 100]) * 32,
            iterations=count,
        )
        changes[credential_key(SHA_256, name)] = record
    return NO_CREDENTIALS.evolve(changes)


def users_of(credentials: Credentials) -> tuple[ImageUsers, Any]:
    cluster: Any = SimpleNamespace(image=SimpleNamespace(credentials=credentials))
    return ImageUsers(cluster, CLUSTER_ID, TokenUsers("", SystemClock())), cluster


def test_a_dummy_credential_is_the_same_on_all_brokers_and_stays_so() -> None:
    credentials = stored(alice=8192, bob=8192)
    one, cluster = users_of(credentials)
    other, _ = users_of(stored(alice=8192, bob=8192))
    first = one.dummy_credential(SHA_256, "nobody")
    assert first == one.dummy_credential(SHA_256, "nobody")
    assert other.dummy_credential(SHA_256, "nobody") == first
    cluster.image.credentials = stored(alice=8192, bob=8192, carol=8192)
    assert one.dummy_credential(SHA_256, "nobody") == first, "another user changes no salt"


def test_a_client_that_knows_the_cluster_id_cannot_compute_a_dummy_credential() -> None:
    users, _ = users_of(stored(alice=4096))
    made = users.dummy_credential(SHA_256, "nobody")
    assert made.salt != dummy_credential(SHA_256, "nobody", CLUSTER_ID.encode()).salt


def test_a_dummy_credential_has_the_iterations_of_users_of_the_mechanism() -> None:
    users, cluster = users_of(stored(alice=8192, bob=8192))
    assert users.dummy_credential(SHA_256, "nobody").iterations == 8192
    assert users.dummy_credential(SHA_512, "nobody").iterations == 4096, (
        "no user has this mechanism"
    )
    cluster.image.credentials = stored(alice=16384)
    assert users.dummy_credential(SHA_256, "nobody").iterations == 16384
