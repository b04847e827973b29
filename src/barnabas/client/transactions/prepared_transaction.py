"""A prepared transaction: stored to end it after a crash (KIP-939)."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["PreparedTransaction"]

_INT64_MAX, _INT16_MAX = 0x7FFF_FFFF_FFFF_FFFF, 0x7FFF


class PreparedTransaction(NamedTuple):
    """Producer id and epoch of a transaction whose records are all written.

    `str()` gives the text form of Kafka's PreparedTxnState, and `parse` reads it.
    """

    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}"

    @classmethod
    def parse(cls, text: str) -> PreparedTransaction:
        """Read the text form, PRODUCER-ID:EPOCH.

        Raises:
            ValueError: the text has another form.
        """
        producer_id, _, epoch = text.partition(":")
        numbers = all(part.isascii() and part.isdecimal() for part in (producer_id, epoch))
        if not numbers or int(producer_id) > _INT64_MAX or int(epoch) > _INT16_MAX:
            raise ValueError(f"{text!r} is not a prepared transaction: write PRODUCER-ID:EPOCH")
        return cls(int(producer_id), int(epoch))
