"""Errors for malformed or unsupported record data."""

from __future__ import annotations


class CorruptBatchError(ValueError):
    """The data is not a valid record batch, message set or control record."""


class DecompressedTooLargeError(CorruptBatchError):
    """The decompressed records exceed the size limit."""


class UnsupportedMagicError(CorruptBatchError):
    """A batch has another message format than the caller supports.

    Attributes:
        magic: the magic byte that was found.
    """

    __slots__ = ("magic",)

    def __init__(self, magic: int) -> None:
        super().__init__(f"record batch has magic {magic}, expected 2")
        self.magic = magic


class InvalidMessageSetError(CorruptBatchError):
    """Messages of magic 0 or 1 in an invalid combination; the error code is INVALID_RECORD."""


class MessageSetTooLargeError(CorruptBatchError):
    """Messages of magic 0 or 1 above the batch size limit; the error code is MESSAGE_TOO_LARGE."""


class UnsupportedConversionError(ValueError):
    """A batch cannot be converted to the older format, because it is compressed with zstd."""
