"""A checksum in white space behind a text, for file formats of Kafka's that have none.

Kafka's readers skip white space at the end of a line, so that the file stays readable to them. The
32 bits of the CRC-32C are written as spaces (0) and tabs (1), the highest bit first.
"""

from __future__ import annotations

from barnabas.record.checksum import crc32c

_BITS = 32
_WHITE = b" \t"


class ChecksumError(ValueError):
    """The checksum behind a text is not that of the text."""


def trailing_checksum(content: bytes) -> bytes:
    """The white space to be written behind `content`, which must not end with white space."""
    assert content == content.rstrip(), content[-20:]
    checksum = crc32c(content)
    return bytes(_WHITE[checksum >> bit & 1] for bit in reversed(range(_BITS)))


def split_checksum(content: bytes) -> bytes:
    """The text without its checksum; a text without one is returned as it is.

    Raises:
        ChecksumError: there is one, and it is not that of the text.
    """
    text = content.rstrip()
    found = content[len(text) :]
    if found and found != trailing_checksum(text):
        raise ChecksumError("the checksum is wrong")
    return text
