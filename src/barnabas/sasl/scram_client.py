"""The client's side of SCRAM (RFC 5802)."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from barnabas.sasl.errors import SaslError
from barnabas.sasl.scram_keys import ITERATIONS_MIN, client_key, salted_password, server_key
from barnabas.sasl.scram_messages import (
    base64_text,
    client_first_bare,
    parse_server_final,
    parse_server_first,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.sasl.scram_keys import ScramMechanism

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
        """Args:
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
