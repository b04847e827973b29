"""Keys of SCRAM (RFC 5802, RFC 7677): a server stores them instead of a password."""

from __future__ import annotations

import enum
import hashlib
import hmac
import string
from typing import Final

import msgspec

# Kafka's limits for stored credentials, and its default.
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
ITERATIONS_DEFAULT: Final = 8_192
_SALT_BYTES = 20
_SALT_BITS = 130
_SALT_DIGITS = string.digits + string.ascii_lowercase


class ScramMechanism(enum.IntEnum):
    """The two mechanisms, with Kafka's numbers."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The mechanism's name in handshakes: SCRAM-SHA-256 or SCRAM-SHA-512."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The name of the hash function in `hashlib`."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @property
    def key_bytes(self) -> int:
        """The length of a key, which is the length of the hash."""
        return 32 if self is ScramMechanism.SCRAM_SHA_256 else 64

    def hmac(self, key: bytes, message: bytes) -> bytes:
        """Return the keyed hash of a message."""
        return hmac.digest(key, message, self.hash_name)

    def hash(self, message: bytes) -> bytes:
        """Return the hash of a message."""
        return hashlib.new(self.hash_name, message).digest()


SCRAM_MECHANISMS: Final = {each.sasl_name: each for each in ScramMechanism}


class ScramCredential(msgspec.Struct, frozen=True):
    """The keys of a password that a server stores."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """Return the salted password. This takes milliseconds, in proportion to the iterations."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential_of(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return the credential of a salted password."""
    stored_key = mechanism.hash(client_key(mechanism, salted))
    return ScramCredential(salt, stored_key, server_key(mechanism, salted), iterations)


def client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """Return the key with which a client proves that it knows the password."""
    return mechanism.hmac(salted, b"Client Key")


def server_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """Return the key with which a server proves that it knows the credential."""
    return mechanism.hmac(salted, b"Server Key")


def printable_salt(random: bytes) -> bytes:
    """Return a salt of digits and small letters, made of random bytes.

    It has the form of a salt of Kafka's tools, 130 bits in base 36. So the salt of an unknown user
    has the form of the salt of a known user.
    """
    number = int.from_bytes(random[:_SALT_BYTES]) % (1 << _SALT_BITS)
    digits = []
    while number:
        number, digit = divmod(number, len(_SALT_DIGITS))
        digits.append(_SALT_DIGITS[digit])
    return "".join(reversed(digits)).encode()


def dummy_credential(
    mechanism: ScramMechanism, name: str, secret: bytes, iterations: tuple[int, ...] = ()
) -> ScramCredential:
    """Return a dummy credential for a user without one. No password matches it.

    It is the same for each login with this name, as a real credential would be.

    Args:
        mechanism: the mechanism of the login.
        name: the name that the client has sent.
        secret: bytes that clients do not know. All brokers of a cluster use the same.
        iterations: the iterations of all users with a credential, sorted. The result has those of
            one user, so that rare iterations do not reveal a user. Empty: the default of Kafka's
            tools.
    """

    def derived(purpose: bytes) -> bytes:
        return mechanism.hmac(secret, purpose + mechanism.to_bytes() + name.encode())

    # In proportion to the length and not a remainder, so that a new user changes few names.
    chosen = int.from_bytes(derived(b"iterations")[:8]) * len(iterations) >> 64
    return ScramCredential(
        printable_salt(derived(b"salt")),
        derived(b"stored"),
        derived(b"server"),
        iterations[chosen] if iterations else ITERATIONS_MIN,
    )
