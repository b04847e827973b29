"""What can be wrong with bytes that claim to be records."""

from __future__ import annotations


class CorruptBatchError(ValueError):
    """Bytes that are not the record batch, message set or control record they should be."""


class DecompressedTooLargeError(CorruptBatchError):
    """Records that decompress to more bytes than they may."""


class UnsupportedMagicError(CorruptBatchError):
    """A batch in another message format than the one that the caller can read.

    Attributes:
        magic: the format byte that was found.
    """

    __slots__ = ("magic",)

    def __init__(self, magic: int) -> None:
        super().__init__(f"record batch has magic {magic}, expected 2")
        self.magic = magic


class InvalidMessageSetError(CorruptBatchError):
    """Intact messages of magic 0 or 1 that do not make one set: INVALID_RECORD to a producer."""


class MessageSetTooLargeError(CorruptBatchError):
    """Messages of magic 0 or 1 that are more than a batch may hold: MESSAGE_TOO_LARGE."""


class UnsupportedConversionError(ValueError):
    """A batch that cannot be put into the older format (zstd), answered as such to the client."""
