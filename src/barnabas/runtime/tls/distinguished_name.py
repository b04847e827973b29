"""The subject of a certificate as text, in the form of Java's `X500Principal.getName()`.

Kafka names principals by this form of RFC 2253: the last part of the subject comes first, and types
without a short name are written as numbers with the value in hexadecimal.
"""

from __future__ import annotations

_SEQUENCE = 0x30
_OBJECT_IDENTIFIER = 0x06
_VERSION = 0xA0
# Fields of a certificate between serial number and subject: algorithm, issuer, validity.
_FIELDS_BEFORE_SUBJECT = 3
_IDENTIFIER_BYTES_MAX = 128
# Types of text: UTF8, Printable, Teletex, IA5, General, BMP. Java reads all of them as UTF-8 here.
_TEXTS = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
_SHORT_NAMES = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED = frozenset(',=+<>#;"\\')


class MalformedCertificateError(ValueError):
    """A certificate that is not valid DER."""


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate in DER.

    Raises:
        MalformedCertificateError: the bytes are not a certificate.
    """
    [outer] = _elements(certificate)
    fields = _elements(_elements(outer[1])[0][1])
    if fields and fields[0][0] == _VERSION:
        del fields[0]
    if len(fields) <= _FIELDS_BEFORE_SUBJECT + 1:
        raise MalformedCertificateError("a certificate without a subject")
    return name_of(fields[_FIELDS_BEFORE_SUBJECT + 1][1])


def name_of(name: bytes) -> str:
    """Return the text of a distinguished name, from the content of its DER sequence.

    Raises:
        MalformedCertificateError: the bytes are not a name.
    """
    parts = [
        "+".join(_attribute(attribute) for _, attribute in _elements(part))
        for _, part in _elements(name)
    ]
    return ",".join(reversed(parts))


def _attribute(attribute: bytes) -> str:
    elements = _elements(attribute)
    if len(elements) != 2 or elements[0][0] != _OBJECT_IDENTIFIER:
        raise MalformedCertificateError("a name with an attribute that is none")
    identifier = _identifier(elements[0][1])
    short = _SHORT_NAMES.get(identifier)
    kind, value = elements[1]
    if short is None or kind not in _TEXTS:
        whole = attribute[len(attribute) - _encoded_length(value) :]
        return f"{short or identifier}=#{whole.hex()}"
    return f"{short}={_escape(value.decode('utf-8', 'replace'))}"


def _escape(text: str) -> str:
    start = len(text) - len(text.lstrip(" "))
    end = len(text.rstrip(" "))
    if start == len(text):
        return "\\ " * len(text)
    body = "".join(
        f"\\{char}" if char in _ESCAPED else "\\00" if char == "\0" else char
        for char in text[start:end]
    )
    return "\\ " * start + body + "\\ " * (len(text) - end)


def _identifier(data: bytes) -> str:
    """Return an object identifier with dots."""
    if len(data) > _IDENTIFIER_BYTES_MAX:
        raise MalformedCertificateError("a long object identifier")
    numbers: list[int] = []
    value = 0
    for byte in data:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    if not numbers:
        raise MalformedCertificateError("an empty object identifier")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    """Return tag and content of each DER element."""
    found: list[tuple[int, bytes]] = []
    position = 0
    while position < len(data):
        if position + 2 > len(data):
            raise MalformedCertificateError("a truncated element")
        tag, length = data[position], data[position + 1]
        position += 2
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(data[position : position + count])
            position += count
        end = position + length
        if end > len(data):
            raise MalformedCertificateError("a truncated element")
        found.append((tag, data[position:end]))
        position = end
    if not found:
        raise MalformedCertificateError("an empty element")
    return found


def _encoded_length(value: bytes) -> int:
    """Return the length of an element with tag and length."""
    size = len(value)
    return size + 2 if size < 0x80 else size + 2 + (size.bit_length() + 7) // 8
