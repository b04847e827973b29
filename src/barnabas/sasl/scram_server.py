"""The server's side of SCRAM: two messages of the client, two for it (RFC 5802)."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.sasl.errors import SaslError
from barnabas.sasl.scram_keys import ITERATIONS_MIN, ScramCredential
from barnabas.sasl.scram_messages import (
    base64_text,
    parse_client_final,
    parse_client_first,
    server_first,
)

if TYPE_CHECKING:
    from barnabas.sasl.scram_keys import ScramMechanism
    from barnabas.sasl.scram_messages import ClientFirst
    from barnabas.sasl.server_mechanism import Identity

# Extension of Kafka's clients: the user name is the id of a delegation token (KIP-48).
TOKEN_AUTH = "tokenauth"  # noqa: S105 - not a password


class ScramUser(msgspec.Struct, frozen=True):
    """A user or a delegation token, as it is stored."""

    credential: ScramCredential
    # Identity of the client after the login: the user, or the owner of the token.
    identity: Identity


class ScramUsers(Protocol):
    """The stored credentials."""

    def find(self, mechanism: ScramMechanism, name: str) -> ScramUser | None:
        """Return the credential of a user; None if there is none."""
        ...

    def find_token(self, mechanism: ScramMechanism, token_id: str) -> ScramUser | None:
        """Return the credential of a delegation token; None if there is none."""
        ...

    def dummy_credential(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        """Return a dummy credential for a name that has none. No password matches it."""
        ...


class _Begun(msgspec.Struct, frozen=True):
    """The exchange after the first message."""

    client: ClientFirst
    # First message of the server, and its nonce: the one of the client, then the one of the server.
    answer: str
    nonce: str
    credential: ScramCredential
    # None if the login must fail. The exchange continues, so that the client does not learn why.
    identity: Identity | None


class ScramServer:
    """One exchange."""

    __slots__ = ("_begun", "_mechanism", "_nonce", "_users", "claimed_name", "identity")

    def __init__(self, mechanism: ScramMechanism, users: ScramUsers, nonce: str) -> None:
        """Args:
        mechanism: the hash function.
        users: the stored credentials.
        nonce: the nonce of the server, printable and without a comma, new for each exchange.
        """
        self._mechanism = mechanism
        self._users = users
        self._nonce = nonce
        # None before the first message.
        self._begun: _Begun | None = None
        self.identity: Identity | None = None
        self.claimed_name: str | None = None

    def respond(self, message: bytes) -> bytes:
        """Answer the first message, or check the last one and answer it.

        Raises:
            SaslError: a message is malformed, or the client does not know the password.
        """
        if self._begun is None:
            self._begun = self._begin(parse_client_first(message))
            return self._begun.answer.encode()
        return self._finish(self._begun, message)

    def _begin(self, client: ClientFirst) -> _Begun:
        mechanism, name = self._mechanism, client.name
        self.claimed_name = name
        is_token = client.extensions.get(TOKEN_AUTH, "").lower() == "true"
        find = self._users.find_token if is_token else self._users.find
        user = find(mechanism, name)
        if user is not None and user.credential.iterations < ITERATIONS_MIN:
            user = None
        # Computed for all names, so that the response time does not reveal which names are users.
        credential = self._users.dummy_credential(mechanism, name)
        if user is not None:
            credential = user.credential
        if client.authorization_id not in ("", name):
            text = "Client requested an authorization id that is different from username"
            raise SaslError(text, f"Authentication failed: {text}")
        nonce = client.nonce + self._nonce
        return _Begun(
            client=client,
            answer=server_first(nonce, credential.salt, credential.iterations),
            nonce=nonce,
            credential=credential,
            identity=None if user is None else user.identity,
        )

    def _finish(self, begun: _Begun, message: bytes) -> bytes:
        final = parse_client_final(message)
        if not hmac.compare_digest(final.nonce.encode(), begun.nonce.encode()):
            raise SaslError("the nonce in the last message of the client is not that of the server")
        if final.channel_binding != begun.client.header.encode():
            raise SaslError("the client has changed the header of its first message")
        mechanism, credential = self._mechanism, begun.credential
        signed = ",".join([begun.client.bare, begun.answer, final.without_proof]).encode()
        signature = mechanism.hmac(credential.stored_key, signed)
        if len(final.proof) != len(signature):
            raise SaslError("the proof of the client has a wrong length")
        key = bytes(a ^ b for a, b in zip(final.proof, signature, strict=True))
        is_right = hmac.compare_digest(mechanism.hash(key), credential.stored_key)
        if not is_right or begun.identity is None:
            known = "wrong password" if begun.identity is not None else "unknown user"
            raise SaslError(known)
        self.identity = begun.identity
        return f"v={base64_text(mechanism.hmac(credential.server_key, signed))}".encode()
