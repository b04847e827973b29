"""Key stores and trust stores: PEM text and files, PKCS12 files and JKS files.

JKS is the default of Java before version 9. Newer `keytool` versions write PKCS12 by default,
whatever the name of the file is. JKS is old and weak. It is read because key stores of existing
clusters have it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import ssl
import tempfile
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from barnabas.runtime.packages import needed_for
from barnabas.runtime.tls.tls_options import TlsOptionsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.runtime.tls.tls_options import KeySource, TlsOptions, TrustSource


_PEM_BEGIN = re.compile(r"-----BEGIN ([A-Z0-9 ]{1,40})-----")
_PEM_LINE = 64
_BYTES_MAX = 16 * 1024 * 1024
_TYPES = ("PEM", "PKCS12", "JKS")
_PKCS12 = "a PKCS12 store"


def load_own_key(context: ssl.SSLContext, source: KeySource) -> bytes | None:
    """Load the own key and certificates into the context.

    Returns:
        The own certificate in DER, or None if the source is empty.

    Raises:
        TlsOptionsError: they cannot be read.
    """
    if source.key is not None or source.certificate_chain is not None:
        if source.key is None:
            raise TlsOptionsError("keystore.key", "missing, but keystore.certificate.chain is set")
        if source.certificate_chain is None:
            raise TlsOptionsError("keystore.certificate.chain", "missing, but keystore.key is set")
        pem = normal_pem(source.key) + normal_pem(source.certificate_chain)
        return _load_pem(context, "keystore.key", pem, source.key_password)
    if source.certificate_location is not None:
        pem = _text("certificate.location", source.certificate_location)
        if source.key_location is not None:
            pem = _text("key.location", source.key_location) + pem
        return _load_pem(context, "certificate.location", normal_pem(pem), source.key_password)
    if source.location is not None:
        return _load_store(context, source, source.location)
    return None


def load_trusted(context: ssl.SSLContext, source: TrustSource) -> None:
    """Load the trusted certificates into the context; without a source, those of the system.

    Raises:
        TlsOptionsError: they cannot be read.
    """
    _load_certificates(context, source)
    if source.revoked_location is None:
        return
    try:
        context.load_verify_locations(cafile=source.revoked_location)
    except OSError as error:
        reason = f"{source.revoked_location} cannot be read: {error.strerror or error}"
        raise TlsOptionsError("crl.location", reason) from None
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _load_certificates(context: ssl.SSLContext, source: TrustSource) -> None:
    if source.certificates is not None:
        option, pem = "truststore.certificates", normal_pem(source.certificates)
    elif source.location is not None:
        option = "truststore.location"
        if Path(source.location).is_dir():
            context.load_verify_locations(capath=source.location)
            return
        data = _read(option, source.location)
        match _type_of(data, source.type, "truststore"):
            case "PEM":
                pem = normal_pem(data.decode("latin-1"))
            case "JKS":
                pem = _trusted_in_jks(data, source, source.location)
            case _:
                pem = _trusted_in_pkcs12(data, source, source.location)
    else:
        context.load_default_certs()
        return
    certificates = _certificates(pem)
    if not certificates:
        raise TlsOptionsError(option, "no certificate in it")
    try:
        context.load_verify_locations(cadata=certificates)
    except (OSError, ValueError) as error:
        raise TlsOptionsError(option, f"a certificate in it cannot be read: {error}") from None


def file_versions(options: TlsOptions) -> tuple[object, ...]:
    """Return a value that changes when a file of the options changes."""
    keys, trust = options.keys, options.trust
    paths = (keys.location, keys.certificate_location, keys.key_location, trust.location)
    return tuple(None if path is None else _version(path) for path in paths)


def _version(path: str) -> object:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def normal_pem(text: str) -> str:
    """Return the PEM blocks of a text with regular line breaks.

    In properties files, line breaks are often replaced by spaces. Text around blocks is dropped.
    """
    return "".join(_normal_block(label, body) for label, body in _blocks(text))


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield label and body of each PEM block, up to the first block without an end."""
    position = 0
    while (begin := _PEM_BEGIN.search(text, position)) is not None:
        label = begin[1]
        closing = f"-----END {label}-----"
        end = text.find(closing, begin.end())
        if end < 0:
            return
        yield label, text[begin.end() : end]
        position = end + len(closing)


def _normal_block(label: str, body: str) -> str:
    if ":" in body:
        # A key in OpenSSL's old encrypted form has header lines.
        return f"-----BEGIN {label}-----{body}-----END {label}-----\n"
    joined = "".join(body.split())
    lines = [joined[start : start + _PEM_LINE] for start in range(0, len(joined), _PEM_LINE)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


def _certificates(pem: str) -> str:
    """Return only the certificates of a normal PEM text."""
    return "".join(
        _normal_block("CERTIFICATE", body)
        for label, body in _blocks(pem)
        if label in ("CERTIFICATE", "TRUSTED CERTIFICATE", "X509 CERTIFICATE") and _is_base64(body)
    )


def _is_base64(body: str) -> bool:
    try:
        base64.b64decode("".join(body.split()), validate=True)
    except binascii.Error:
        return False
    return True


def _load_store(context: ssl.SSLContext, source: KeySource, location: str) -> bytes:
    data = _read("keystore.location", location)
    match _type_of(data, source.type, "keystore"):
        case "PEM":
            pem = normal_pem(data.decode("latin-1"))
            return _load_pem(context, "keystore.location", pem, source.key_password)
        case "JKS":
            pem = _own_in_jks(data, source, location)
        case _:
            pem = _own_in_pkcs12(data, source, location)
    return _load_pem(context, "keystore.location", pem, None)


def _type_of(data: bytes, configured: str | None, store: str) -> str:
    """Return "PEM", "PKCS12" or "JKS", from the content and the configured type.

    Kafka's default type is JKS. Java reads both formats with either of the types PKCS12 and JKS.
    """
    location = f"{store}.location"
    if configured is not None and configured.upper() not in _TYPES:
        raise TlsOptionsError(f"{store}.type", f"{configured} is not one of: {', '.join(_TYPES)}")
    is_jks = data.startswith(MAGIC)
    is_pem = not is_jks and b"-----BEGIN " in data
    if configured is not None and configured.upper() == "PEM" and not is_pem:
        raise TlsOptionsError(location, "no PEM text in it, but its type is PEM")
    if configured is not None and configured.upper() == "PKCS12" and is_pem:
        raise TlsOptionsError(location, f"PEM text; set ssl.{store}.type=PEM")
    if is_jks:
        return "JKS"
    return "PEM" if is_pem else "PKCS12"


def _own_in_jks(data: bytes, source: KeySource, location: str) -> str:
    """Return the first key of a JKS store and its certificates as PEM text."""
    option = "keystore.location"
    key_password = source.key_password if source.key_password is not None else source.password
    try:
        store = read_java_key_store(data, source.password)
    except JavaKeyStoreError as error:
        reason = _not_opened_as_jks(location, "keystore.password", error)
        raise TlsOptionsError(option, reason) from None
    if not store.keys or not store.keys[0].chain:
        raise TlsOptionsError(option, f"{location} has no private key with a certificate")
    if key_password is None:
        raise TlsOptionsError("keystore.password", f"missing, but {location} is a JKS store")
    protected, chain = store.keys[0]
    try:
        key = unprotect(protected, key_password)
    except JavaKeyStoreError as error:
        reason = _not_opened_as_jks(location, "key.password", error)
        raise TlsOptionsError(option, reason) from None
    return _block_of("PRIVATE KEY", key) + _certificate_blocks(chain)


def _trusted_in_jks(data: bytes, source: TrustSource, location: str) -> str:
    """Return the certificates of a JKS store as PEM text.

    As in Java, the own certificate of each private key is trusted too.
    """
    try:
        store = read_java_key_store(data, source.password)
    except JavaKeyStoreError as error:
        reason = _not_opened_as_jks(location, "truststore.password", error)
        raise TlsOptionsError("truststore.location", reason) from None
    own = [key.chain[0] for key in store.keys if key.chain]
    return _certificate_blocks([*store.trusted, *own])


def _not_opened_as_jks(location: str, password: str, error: JavaKeyStoreError) -> str:
    check = f", check ssl.{password}" if isinstance(error, WrongPasswordError) else ""
    return f"{location} cannot be opened as JKS{check}: {error}"


def _certificate_blocks(certificates: Iterable[bytes]) -> str:
    return "".join(_block_of("CERTIFICATE", each) for each in certificates)


def _block_of(label: str, der: bytes) -> str:
    return _normal_block(label, base64.b64encode(der).decode())


def _own_in_pkcs12(data: bytes, source: KeySource, location: str) -> str:
    """Return the key and the certificates of a PKCS12 store as PEM text."""
    # Imported here because it takes 30 ms.
    with needed_for(_PKCS12):
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12

    option = "keystore.location"
    password = source.password if source.password is not None else source.key_password
    try:
        found = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except (ValueError, TypeError) as error:
        raise TlsOptionsError(option, _not_opened(location, "keystore.password", error)) from None
    if found.key is None or found.cert is None:
        raise TlsOptionsError(option, f"{location} has no private key with a certificate")
    key = found.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    certificates = [found.cert.certificate, *(each.certificate for each in found.additional_certs)]
    chain = [each.public_bytes(serialization.Encoding.PEM) for each in certificates]
    return b"".join([key, *chain]).decode()


def _trusted_in_pkcs12(data: bytes, source: TrustSource, location: str) -> str:
    """Return the certificates of a PKCS12 store as PEM text."""
    with needed_for(_PKCS12):
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12

    password = None if source.password is None else source.password.encode()
    try:
        found = pkcs12.load_pkcs12(data, password)
    except (ValueError, TypeError) as error:
        reason = _not_opened(location, "truststore.password", error)
        raise TlsOptionsError("truststore.location", reason) from None
    certificates = [each.certificate for each in found.additional_certs]
    if found.cert is not None:
        certificates.append(found.cert.certificate)
    return "".join(each.public_bytes(serialization.Encoding.PEM).decode() for each in certificates)


def _not_opened(location: str, password: str, error: Exception) -> str:
    return f"{location} cannot be opened as PKCS12, check ssl.{password}: {error}"


def _load_pem(context: ssl.SSLContext, option: str, pem: str, password: str | None) -> bytes:
    """Load a key and its certificates, which are in one PEM text. Return the first certificate."""

    def give_password() -> str:
        # Without this function, OpenSSL would ask on the terminal.
        if password is None:
            raise TlsOptionsError("key.password", "missing, but the private key is encrypted")
        return password

    if "PRIVATE KEY-----" not in pem:
        raise TlsOptionsError(option, "no private key in it")
    certificates = _certificates(pem)
    if not certificates:
        raise TlsOptionsError(option, "no certificate in it")
    with _as_file(pem.encode("latin-1")) as path:
        try:
            context.load_cert_chain(path, password=give_password)
        except (OSError, ValueError) as error:
            if isinstance(error, TlsOptionsError):
                raise
            raise TlsOptionsError(option, _unusable_key(error, password)) from None
    _, first = next(_blocks(certificates))
    return base64.b64decode(first)


def _unusable_key(error: Exception, password: str | None) -> str:
    reason = getattr(error, "reason", None)
    if reason == "KEY_VALUES_MISMATCH":
        return "the private key does not belong to the first certificate"
    if password is not None:
        return f"the key cannot be read, check ssl.key.password: {reason or error}"
    return f"the key or a certificate cannot be read: {reason or error}"


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Yield the path of a file with the data: OpenSSL reads keys from files only.

    On Linux the file is in memory. Elsewhere it is a temporary file that only this user can read,
    removed at once.
    """
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").exists():
        descriptor = os.memfd_create("key")
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    descriptor, name = tempfile.mkstemp()
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        # Windows opens a temporary file a second time only after it is closed.
        yield name
    finally:
        Path(name).unlink()


def _read(option: str, location: str) -> bytes:
    try:
        with Path(location).open("rb") as file:
            data = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise TlsOptionsError(option, f"{location}: {error.strerror or error}") from None
    if len(data) > _BYTES_MAX:
        raise TlsOptionsError(option, f"{location}: larger than {_BYTES_MAX} bytes")
    return data


def _text(option: str, location: str) -> str:
    return _read(option, location).decode("latin-1")


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
    """Return the entries of a store in Java's own format (JKS).

    A store is a list of entries behind a header, and a SHA-1 digest over the password and the list.

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

    It is encrypted by a stream of SHA-1 digests over the password, and has a digest of its own.

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
