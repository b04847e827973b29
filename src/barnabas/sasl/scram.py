"""Both sides of SCRAM, and their messages, parsed without backtracking (RFC 5802).

The client and the server send two messages each.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import TYPE_CHECKING, Protocol

import msgspec

from barnabas.sasl.mechanism import SaslError
from barnabas.sasl.scram_keys import (
    ITERATIONS_MIN,
    ScramCredential,
    client_key,
    salted_password,
    server_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.sasl.mechanism import Identity
    from barnabas.sasl.scram_keys import ScramMechanism


# Clients without a login send these messages, and the server keeps the first one until the last one
# arrives. Usual messages have 200 bytes.
_MESSAGE_BYTES_MAX = 8 * 1024


class ClientFirst(msgspec.Struct, frozen=True):
    """First message of a client."""

    # Header of the message up to the second comma, which the client repeats in its last message.
    header: str
    # Authorization id; empty if the client sent none.
    authorization_id: str
    name: str
    nonce: str
    # Extensions by name. Kafka's clients send `tokenauth=true` for delegation tokens.
    extensions: dict[str, str]
    # The message without its header, for the proofs.
    bare: str


class ServerFirst(msgspec.Struct, frozen=True):
    """First message of a server."""

    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(msgspec.Struct, frozen=True):
    """Last message of a client."""

    channel_binding: bytes
    nonce: str
    proof: bytes
    # The message without its proof, for the proofs.
    without_proof: str


def parse_client_first(message: bytes) -> ClientFirst:
    """Parse the first message of a client.

    Raises:
        SaslError: the message is malformed, or wants a channel binding or an unknown extension.
    """
    text = _text(message)
    binding, _, rest = text.partition(",")
    authorization, comma, bare = rest.partition(",")
    if (
        binding not in ("n", "y")
        or not comma
        or not (authorization == "" or authorization.startswith("a="))
    ):
        raise SaslError("the first SCRAM message of the client has no valid header")
    attributes = _attributes(bare)
    if [each[0] for each in attributes[:2]] != ["n", "r"]:
        raise SaslError("the first SCRAM message of the client has no user name and nonce")
    nonce = attributes[1][1]
    if not _is_printable(nonce):
        raise SaslError("the nonce of the client is not printable")
    return ClientFirst(
        header=f"{binding},{authorization},",
        authorization_id=_name(authorization[2:]),
        name=_name(attributes[0][1]),
        nonce=nonce,
        extensions=dict(attributes[2:]),
        bare=bare,
    )


def parse_server_first(message: bytes) -> ServerFirst:
    """Parse the first message of a server.

    Raises:
        SaslError: the message is malformed.
    """
    attributes = _attributes(_text(message))
    if [each[0] for each in attributes[:3]] != ["r", "s", "i"]:
        raise SaslError("the first SCRAM message of the server has no nonce, salt and iterations")
    iterations = attributes[2][1]
    if not (iterations.isascii() and iterations.isdigit() and len(iterations) < 10):
        raise SaslError("the iterations of the server are no number")
    return ServerFirst(attributes[0][1], _bytes(attributes[1][1]), int(iterations))


def parse_client_final(message: bytes) -> ClientFinal:
    """Parse the last message of a client.

    Raises:
        SaslError: the message is malformed.
    """
    text = _text(message)
    without_proof, _, proof = text.rpartition(",p=")
    attributes = _attributes(without_proof)
    if [each[0] for each in attributes[:2]] != ["c", "r"]:
        raise SaslError("the last SCRAM message of the client has no binding, nonce and proof")
    return ClientFinal(_bytes(attributes[0][1]), attributes[1][1], _bytes(proof), without_proof)


def parse_server_final(message: bytes) -> bytes:
    """Return the signature in the last message of a server.

    Raises:
        SaslError: the message is malformed, or the server reports an error.
    """
    attributes = _attributes(_text(message))
    if attributes[0][0] == "e":
        raise SaslError(f"the server has refused the login: {attributes[0][1]}")
    if attributes[0][0] != "v":
        raise SaslError("the last SCRAM message of the server has no signature")
    return _bytes(attributes[0][1])


def server_first(nonce: str, salt: bytes, iterations: int) -> str:
    """Return the first message of a server."""
    return f"r={nonce},s={base64_text(salt)},i={iterations}"


def client_first_bare(name: str, nonce: str, extensions: dict[str, str]) -> str:
    """Return the first message of a client, without its header."""
    escaped = name.replace("=", "=3D").replace(",", "=2C")
    return "".join([
        f"n={escaped},r={nonce}",
        *(f",{key}={value}" for key, value in extensions.items()),
    ])  # fmt: skip


def base64_text(data: bytes) -> str:
    """Return bytes as text of the messages."""
    return base64.b64encode(data).decode()


def _text(message: bytes) -> str:
    if len(message) > _MESSAGE_BYTES_MAX:
        raise SaslError(f"a SCRAM message has more than {_MESSAGE_BYTES_MAX} bytes")
    try:
        return message.decode()
    except UnicodeDecodeError as error:
        raise SaslError("a SCRAM message is not UTF-8") from error


def _attributes(text: str) -> list[tuple[str, str]]:
    """Return the attributes in order. The name of each is letters, and its value not empty."""
    found = []
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not (name.isascii() and name.isalpha() and equals and value) or "\0" in value:
            raise SaslError("a SCRAM message has an attribute that is not NAME=VALUE")
        if name == "m":
            raise SaslError("a SCRAM message has a mandatory extension, and none is known")
        found.append((name, value))
    return found


def _name(escaped: str) -> str:
    """Return a user name without its escapes."""
    if "=" in escaped.replace("=2C", "").replace("=3D", ""):
        raise SaslError("a user name has an escape other than =2C and =3D")
    return escaped.replace("=2C", ",").replace("=3D", "=")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SaslError("a SCRAM message has a value that is not base64") from error


def _is_printable(text: str) -> bool:
    """Return whether there are only characters from 0x21 to 0x7E."""
    return text.isascii() and text.isprintable() and " " not in text


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
    response: str
    nonce: str
    credential: ScramCredential
    # None if the login must fail. The exchange continues, so that the client does not learn why.
    identity: Identity | None


class ScramServer:
    """One exchange."""

    __slots__ = ("_begun", "_mechanism", "_nonce", "_users", "claimed_name", "identity")

    def __init__(self, mechanism: ScramMechanism, users: ScramUsers, nonce: str) -> None:
        """Begin an exchange.

        Args:
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
        """Respond to the first message, or check the last one and respond to it.

        Raises:
            SaslError: a message is malformed, or the client does not know the password.
        """
        if self._begun is None:
            self._begun = self._begin(parse_client_first(message))
            return self._begun.response.encode()
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
            response=server_first(nonce, credential.salt, credential.iterations),
            nonce=nonce,
            credential=credential,
            identity=None if user is None else user.identity,
        )

    def _finish(self, begun: _Begun, message: bytes) -> bytes:
        final = parse_client_final(message)
        if not hmac.compare_digest(final.nonce.encode(), begun.nonce.encode()):
            text = "the nonce in the last message of the client is not that of the server"
            if final.nonce == begun.client.nonce + begun.nonce:
                text += "; it has the client's part twice, as from librdkafka before 2.6.1"
            raise SaslError(text)
        if final.channel_binding != begun.client.header.encode():
            raise SaslError("the client has changed the header of its first message")
        mechanism, credential = self._mechanism, begun.credential
        signed = ",".join([begun.client.bare, begun.response, final.without_proof]).encode()
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


# Half a second of hashing. A server that requests more is misconfigured or hostile.
_ITERATIONS_MAX = 1_000_000
# No channel binding, and no authorization id.
_HEADER = "n,,"


class ScramClient:
    """One exchange."""

    __slots__ = (
        "_bare",
        "_mechanism",
        "_nonce",
        "_password",
        "_salted",
        "_signature",
        "is_complete",
    )

    def __init__(
        self,
        mechanism: ScramMechanism,
        name: str,
        password: str,
        nonce: str,
        extensions: dict[str, str] | None = None,
    ) -> None:
        """Begin an exchange.

        Args:
            mechanism: the hash function.
            name: the user, or the id of a delegation token.
            password: the password, or the token.
            nonce: printable and without a comma, new for each exchange.
            extensions: further attributes of the first message.
        """
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._bare = client_first_bare(name, nonce, extensions or {})
        # The salted password, from `prepare` until the proof is made.
        self._salted: bytes | None = None
        # The signature that the server has to send; None before the proof.
        self._signature: bytes | None = None
        self.is_complete = False

    def first(self) -> bytes:
        """Return the first message: the user and the nonce."""
        return (_HEADER + self._bare).encode()

    def prepare(self, message: bytes) -> Callable[[], None] | None:
        """Return the hashing of the password after the first message of the server.

        Raises:
            SaslError: the message is malformed, or the iterations are not between the limits.
        """
        if self._signature is not None:
            return None
        server = parse_server_first(message)
        if not ITERATIONS_MIN <= server.iterations <= _ITERATIONS_MAX:
            raise SaslError(
                f"the server requests {server.iterations} iterations; allowed are {ITERATIONS_MIN} "
                f"to {_ITERATIONS_MAX}"
            )

        def hash_password() -> None:
            self._salted = salted_password(
                self._mechanism, self._password, server.salt, server.iterations
            )

        return hash_password

    def respond(self, message: bytes) -> bytes | None:
        """Return the proof, or check the signature of the server.

        Raises:
            SaslError: the message is malformed, or the server does not know the password.
        """
        if self._signature is not None:
            if not hmac.compare_digest(parse_server_final(message), self._signature):
                raise SaslError("the server does not know the password: its signature is wrong")
            self.is_complete = True
            return None
        server = parse_server_first(message)
        if not server.nonce.startswith(self._nonce) or server.nonce == self._nonce:
            raise SaslError("the nonce of the server does not continue that of the client")
        mechanism, salted = self._mechanism, self._salted
        assert salted is not None, "`prepare` comes first"
        without_proof = f"c={base64_text(_HEADER.encode())},r={server.nonce}"
        signed = ",".join([self._bare, message.decode(), without_proof]).encode()
        key = client_key(mechanism, salted)
        signature = mechanism.hmac(mechanism.hash(key), signed)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        self._signature = mechanism.hmac(server_key(mechanism, salted), signed)
        self._salted = None
        return f"{without_proof},p={base64_text(proof)}".encode()
