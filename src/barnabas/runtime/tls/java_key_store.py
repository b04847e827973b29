"""Java's own format of key stores and trust stores (JKS).

A store is a list of entries behind a header, and a SHA-1 digest over the password and the list.
A private key is encrypted by a stream of SHA-1 digests over the password, and has a digest of its
own. The format is old and weak: `keytool` writes PKCS12 by default since Java 9. It is read because
key stores of existing clusters have it.
"""

from __future__ import annotations

import hashlib
import hmac
from struct import Struct
from typing import NamedTuple

MAGIC = b"\xfe\xed\xfe\xed"
_VERSIONS = (1, 2)
_PRIVATE_KEY, _TRUSTED_CERTIFICATE = 1, 2
_DIGEST_SIZE = 20
# The digest of a store covers this constant after the password.
_CONSTANT = b"Mighty Aphrodite"
_U16, _U32 = Struct(">H"), Struct(">I")
_TIME_SIZE = 8
_CUT_SHORT = "the store is cut short"
# DER of the object identifier 1.3.6.1.4.1.42.2.17.1.1: the encryption of keys in such a store.
_KEY_PROTECTOR = bytes.fromhex("060a2b060104012a02110101")
_SEQUENCE, _OCTETS = 0x30, 0x04


class JavaKeyStoreError(Exception):
    """The store cannot be read."""


class WrongPasswordError(JavaKeyStoreError):
    """The digest does not match: the password is wrong, or the store is damaged."""


class ProtectedKey(NamedTuple):
    """A private key with its certificates."""

    # Encrypted; `unprotect` returns the key.
    protected: bytes
    # Certificates in DER, the own one first.
    chain: list[bytes]


class JavaKeyStore(NamedTuple):
    """The entries of a store in their order."""

    keys: list[ProtectedKey]
    # Trusted certificates in DER.
    trusted: list[bytes]


def read_java_key_store(data: bytes, password: str | None) -> JavaKeyStore:
    """Return the entries of a store.

    Args:
        data: the file.
        password: of the store. Without it, the digest is not checked, as in Java.

    Raises:
        WrongPasswordError: the digest does not match.
        JavaKeyStoreError: the data is not such a store.
    """
    body, digest = data[:-_DIGEST_SIZE], data[-_DIGEST_SIZE:]
    if password is not None:
        expected = _sha1(_utf16(password) + _CONSTANT + body)
        if not hmac.compare_digest(expected, digest):
            raise WrongPasswordError("the password is wrong, or the store is damaged")
    reader = _StoreReader(body)
    if reader.take(len(MAGIC)) != MAGIC:
        raise JavaKeyStoreError("this is not a JKS store")
    version = reader.u32()
    if version not in _VERSIONS:
        raise JavaKeyStoreError(f"version {version} of JKS is not known")
    store = JavaKeyStore([], [])
    for _ in range(reader.u32()):
        tag = reader.u32()
        reader.text()
        reader.take(_TIME_SIZE)
        if tag == _PRIVATE_KEY:
            protected = reader.block()
            chain = [reader.certificate(version) for _ in range(reader.u32())]
            store.keys.append(ProtectedKey(protected, chain))
        elif tag == _TRUSTED_CERTIFICATE:
            store.trusted.append(reader.certificate(version))
        else:
            raise JavaKeyStoreError(f"the store has an entry of an unknown kind: {tag}")
    return store


def unprotect(protected: bytes, password: str) -> bytes:
    """Return a private key in DER (PKCS8).

    Args:
        protected: the encrypted key of an entry.
        password: of the key.

    Raises:
        WrongPasswordError: the digest of the key does not match.
        JavaKeyStoreError: the key is encrypted in another way.
    """
    content = _octets_of_key(protected)
    secret = _utf16(password)
    salt, encrypted = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:-_DIGEST_SIZE]
    stream, block = bytearray(), salt
    while len(stream) < len(encrypted):
        block = _sha1(secret + block)
        stream += block
    key = bytes(a ^ b for a, b in zip(encrypted, stream, strict=False))
    if not hmac.compare_digest(_sha1(secret + key), content[-_DIGEST_SIZE:]):
        raise WrongPasswordError("the password of the key is wrong, or the store is damaged")
    return key


def _octets_of_key(protected: bytes) -> bytes:
    """Return salt, encrypted key and digest of an `EncryptedPrivateKeyInfo` (PKCS8)."""
    outer = _StoreReader(_StoreReader(protected).der(_SEQUENCE))
    if not outer.der(_SEQUENCE).startswith(_KEY_PROTECTOR):
        raise JavaKeyStoreError("the private key is not encrypted in the way of JKS")
    content = outer.der(_OCTETS)
    if len(content) <= 2 * _DIGEST_SIZE:
        raise JavaKeyStoreError(_CUT_SHORT)
    return content


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


def _sha1(data: bytes) -> bytes:
    # The format prescribes SHA-1.
    return hashlib.sha1(data, usedforsecurity=False).digest()


class _StoreReader:
    """Reads values one after the other, with bounds checked."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        # The next byte to read. Invariant: 0 <= position <= size of the data.
        self._position = 0

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        end = self._position + size
        if end > len(self._data):
            raise JavaKeyStoreError(_CUT_SHORT)
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def u32(self) -> int:
        """Return a number of four bytes."""
        value: int = _U32.unpack(self.take(_U32.size))[0]
        return value

    def block(self) -> bytes:
        """Return bytes whose number precedes them."""
        return self.take(self.u32())

    def text(self) -> bytes:
        """Return the bytes of a text, whose number of two bytes precedes them."""
        size: int = _U16.unpack(self.take(_U16.size))[0]
        return self.take(size)

    def certificate(self, version: int) -> bytes:
        """Return a certificate in DER."""
        if version > 1 and self.text() != b"X.509":
            raise JavaKeyStoreError("the store has a certificate that is not X.509")
        return self.block()

    def der(self, tag: int) -> bytes:
        """Return the content of a DER value with this tag."""
        found, size = self.take(2)
        if found != tag:
            raise JavaKeyStoreError("the private key is not in the form of PKCS8")
        if size & 0x80:
            size = int.from_bytes(self.take(size & 0x7F))
        return self.take(size)
