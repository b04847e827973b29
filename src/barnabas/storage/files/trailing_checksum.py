"""A checksum in white space at the end of a text, for Kafka's formats without checksum.

Kafka's readers ignore white space at the end of a line, so they can still read the file. The 32
bits of the CRC-32C are written as spaces (0) and tabs (1), highest bit first.
"""

from __future__ import annotations

from barnabas.record.checksum import crc32c

_BITS = 32
_WHITE = b" \t"


class ChecksumError(ValueError):
    """The checksum does not match the text."""


def trailing_checksum(content: bytes) -> bytes:
    """Return the checksum for the end of `content`, which must not end with white space."""
    assert content == content.rstrip(), content[-20:]
    checksum = crc32c(content)
    return bytes(_WHITE[checksum >> bit & 1] for bit in reversed(range(_BITS)))


def split_checksum(content: bytes) -> bytes:
    """Return the text without its checksum; a text without checksum is returned unchanged.

    Raises:
        ChecksumError: the checksum does not match the text.
    """
    text = content.rstrip()
    found = content[len(text) :]
    if found and found != trailing_checksum(text):
        raise ChecksumError("the checksum is wrong")
    return text
