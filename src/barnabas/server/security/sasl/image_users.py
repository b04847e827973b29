"""SCRAM credentials and tokens of the committed metadata, for the logins of a node."""

from __future__ import annotations

import hashlib
from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from barnabas.metadata.credentials import credentials, find_credential
from barnabas.sasl.scram_keys import dummy_credential
from barnabas.sasl.scram_server import ScramUser
from barnabas.sasl.server_mechanism import Identity

if TYPE_CHECKING:
    from barnabas.metadata.credentials import Credentials
    from barnabas.sasl.scram_keys import ScramCredential, ScramMechanism
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.security.sasl.token_users import TokenUsers

# Credentials whose keys are part of the secret. One is too few: its user knows the key.
_SECRET_KEYS = 2
# Credentials that are read for dummy credentials. That takes about 10 ms, only after a change.
_READ_MAX = 10_000


class _DummyData(msgspec.Struct, frozen=True):
    """The data of dummy credentials, for one state of the stored records."""

    source: Credentials
    secret: bytes
    # Iterations of each credential of a mechanism, sorted.
    iterations: dict[int, tuple[int, ...]]


class ImageUsers:
    """Finds credentials in the current image."""

    __slots__ = ("_cluster", "_cluster_id", "_dummy", "_tokens")

    def __init__(self, cluster: ClusterView, cluster_id: str, tokens: TokenUsers) -> None:
        """Args:
        cluster: has the current image.
        cluster_id: a part of the secret of dummy credentials.
        tokens: finds delegation tokens.
        """
        self._cluster = cluster
        self._cluster_id = cluster_id.encode()
        self._tokens = tokens
        # Created by the first login after a change of the stored records.
        self._dummy: _DummyData | None = None

    def find(self, mechanism: ScramMechanism, name: str) -> ScramUser | None:
        """Return the credential of a user; None if there is none."""
        found = find_credential(self._cluster.image.credentials, mechanism, name)
        return None if found is None else ScramUser(found, Identity(name))

    def find_token(self, mechanism: ScramMechanism, token_id: str) -> ScramUser | None:
        """Return the credential of a delegation token; None if it does not exist or expired."""
        return self._tokens.find(self._cluster.image.tokens, mechanism, token_id)

    def dummy_credential(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        """Return a dummy credential for a name that has none. No password matches it.

        Its salt stays the same on all brokers, and its iterations are those of a user. The
        secret is made of stored keys: clients know the cluster id, but not the keys.
        """
        stored = self._cluster.image.credentials
        known = self._dummy
        if known is None or known.source is not stored:
            known = self._dummy = self._read(stored)
        return dummy_credential(mechanism, name, known.secret, known.iterations.get(mechanism, ()))

    def _read(self, stored: Credentials) -> _DummyData:
        iterations: dict[int, list[int]] = {}
        keys = []
        for mechanism, credential in islice(credentials(stored), _READ_MAX):
            iterations.setdefault(mechanism, []).append(credential.iterations)
            keys.append(credential.server_key)
        # Only a few keys, so that a new user rarely changes the secret.
        secret = hashlib.sha256(b"".join([self._cluster_id, *nsmallest(_SECRET_KEYS, keys)]))
        return _DummyData(
            stored,
            secret.digest(),
            {mechanism: tuple(sorted(each)) for mechanism, each in iterations.items()},
        )
