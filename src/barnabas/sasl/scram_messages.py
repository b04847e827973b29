"""Messages of SCRAM (RFC 5802, section 7), parsed without backtracking."""

from __future__ import annotations

import base64
import binascii

import msgspec

from barnabas.sasl.errors import SaslError

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
