"""Mechanisms that a listener offers, and the users and tokens that they accept.

SCRAM finds credentials in the committed metadata. A delegation token is a user of SCRAM, too: the
name is the token id, the password the HMAC (KIP-48).
"""

from __future__ import annotations

import hashlib
import logging
from base64 import urlsafe_b64encode
from collections import OrderedDict
from functools import partial
from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from barnabas.metadata.credentials import (
    credentials,
    find_credential,
    is_expired,
    principal_parts,
    token_hmac,
)
from barnabas.network.principal import USER
from barnabas.sasl.mechanism import Identity
from barnabas.sasl.oauthbearer import OAUTHBEARER, OAuthBearerServer
from barnabas.sasl.plain import PLAIN, PlainServer
from barnabas.sasl.scram import ScramServer, ScramUser, base64_text
from barnabas.sasl.scram_keys import (
    ITERATIONS_MIN,
    SCRAM_MECHANISMS,
    credential_of,
    dummy_credential,
    printable_salt,
    salted_password,
)
from barnabas.sasl.token_claims import identity_of, read_unsecured
from barnabas.server.security.sasl.login import OfferedMechanism

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.metadata.credentials import Credentials, Tokens
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.loop import Runtime
    from barnabas.sasl.mechanism import ServerMechanism
    from barnabas.sasl.scram import ScramUsers
    from barnabas.sasl.scram_keys import ScramCredential, ScramMechanism
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.configs.listener_sasl import ListenerSasl, MechanismSettings
    from barnabas.server.configs.oauth_settings import KeySource, OAuthSettings


_log = logging.getLogger(__name__)

# The credentials that are kept. Making one takes a few milliseconds.
KEPT_MAX = 10_000


class TokenUsers:
    """Makes the credentials of tokens when clients log in, and keeps the latest.

    The salt is made from the HMAC, so that a token has the same credential on all nodes.
    """

    def __init__(self, secret_key: str, clock: Clock) -> None:
        """Create without credentials.

        Args:
            secret_key: `delegation.token.secret.key`; empty if tokens are switched off.
            clock: its wall clock decides which tokens have expired.
        """
        self._secret_key = secret_key
        self._clock = clock
        # Credentials by mechanism and token id; the latest use is at the end.
        self._kept: OrderedDict[tuple[ScramMechanism, str], ScramCredential] = OrderedDict()

    def find(self, tokens: Tokens, mechanism: ScramMechanism, token_id: str) -> ScramUser | None:
        """Return the credential of a token and its owner.

        None if there is no such token, if it has expired, or if the owner is no user. Kafka accepts
        an expired token until it is removed.
        """
        token = tokens.get(token_id) if self._secret_key else None
        if token is None or is_expired(token, self._clock.wall_ms()):
            return None
        kind, name = principal_parts(token.owner)
        if kind != USER:
            # Kafka logs the client in as the user of this name, which is another user.
            return None
        identity = Identity(name, is_token=True, expiry_ms=token.expiration_timestamp)
        return ScramUser(self._credential(mechanism, token_id), identity)

    def _credential(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential:
        key = (mechanism, token_id)
        found = self._kept.get(key)
        if found is None:
            secret = token_hmac(self._secret_key, token_id)
            salt = printable_salt(mechanism.hmac(secret, b"salt"))
            salted = salted_password(mechanism, base64_text(secret), salt, ITERATIONS_MIN)
            found = self._kept[key] = credential_of(mechanism, salted, salt, ITERATIONS_MIN)
            if len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return found


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

    def __init__(self, cluster: ClusterView, cluster_id: str, tokens: TokenUsers) -> None:
        """Create the access to the stored users.

        Args:
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


def token_validator(settings: OAuthSettings, runtime: Runtime) -> Callable[[str], Identity]:
    """Return a function that checks a token, and begin to load the keys of the issuer."""
    rules, source = settings.rules, settings.keys
    if source is None:
        _log.warning(
            "OAUTHBEARER accepts tokens without a signature: any client can be any user. This is "
            "for development only"
        )
        return lambda token: identity_of(read_unsecured(token), rules, runtime.clock.wall_ms())
    # Imported only for listeners with signed tokens: the extra `oauth` brings a package for them.
    from barnabas.server.security.sasl.signed_tokens import IssuerKeys, SignedTokens

    keys = IssuerKeys(source, runtime, _loading(source, runtime))
    keys.start()
    return SignedTokens(keys, rules, runtime.clock).validate


def _loading(source: KeySource, runtime: Runtime) -> Callable[[], bytes]:
    path = source.path
    if path is not None:
        return partial(runtime.disk.read, path)
    from barnabas.runtime.web import WebRequest, fetch

    return partial(fetch, WebRequest(source.url, {"Accept": "application/json"}))


_NONCE_BYTES = 24


class Mechanisms:
    """Creates the server's side of exchanges."""

    def __init__(self, users: ScramUsers, runtime: Runtime) -> None:
        """Create the mechanisms of a node.

        Args:
            users: the stored SCRAM credentials.
            runtime: randomness of nonces, and dependencies of the validation of tokens.
        """
        self._users = users
        self._runtime = runtime

    def offered(self, settings: ListenerSasl) -> dict[str, OfferedMechanism]:
        """Return the enabled mechanisms of a listener by name."""
        return {
            name: OfferedMechanism(self._beginning(name, each), each.session_ms_max)
            for name, each in settings.mechanisms.items()
        }

    def _beginning(self, name: str, settings: MechanismSettings) -> Callable[[], ServerMechanism]:
        """Return a function that begins an exchange of the mechanism."""
        scram = SCRAM_MECHANISMS.get(name)
        if scram is not None:
            return lambda: ScramServer(scram, self._users, self._nonce())
        if name == OAUTHBEARER:
            assert settings.oauth is not None, "OAUTHBEARER has its settings"
            # Imported only for listeners with OAUTHBEARER.

            validate = token_validator(settings.oauth, self._runtime)
            return lambda: OAuthBearerServer(validate)
        assert name == PLAIN, name
        assert settings.module is not None, "PLAIN has its users in a login module"
        users = settings.module.users()
        return lambda: PlainServer(users)

    def _nonce(self) -> str:
        """Return new printable characters without a comma."""
        return urlsafe_b64encode(self._runtime.rng.token(_NONCE_BYTES)).decode()
