"""What a request comes to: records to be written, and the response once they are committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.metadata.image import ClusterImage
    from barnabas.protocol.schema import Record

R = TypeVar("R")

# A record and the version to write it in.
VersionedRecord = tuple["Record", int]


class ControllerResult(msgspec.Struct, Generic[R], frozen=True):
    """What is to be written, and answered once that is committed."""

    records: list[VersionedRecord]
    response: R
    # All of them or none; else they may be written in several batches, one after the other.
    atomic: bool = True
    # Nothing was left to be asked of the controller's state: answered however little time there is.
    at_once: bool = False


class MutationLimit(Protocol):
    """How much one request may change, as far as the controller knows it."""

    def take(self, partitions: int) -> bool:
        """Whether so many partitions may be made or deleted; if so they are counted."""
        ...


class ControllerView(msgspec.Struct, frozen=True):
    """The cluster as of the last appended record, which may not be committed yet."""

    image: ClusterImage
    # Offset that the first record of the result will get.
    next_offset: int
    # Monotonic clock.
    now_ms: float = 0.0
    # What the asker may still change; None: as much as it likes.
    mutations: MutationLimit | None = None

    def take_mutations(self, partitions: int) -> None:
        """Count partitions that are made or deleted (KIP-599).

        Raises:
            Refusal: THROTTLING_QUOTA_EXCEEDED, nothing was counted.
        """
        if self.mutations is not None and not self.mutations.take(partitions):
            error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
            raise Refusal(error, error.message)


class Refusal(Exception):  # noqa: N818 - an answer, not a failure
    """One item of a request is turned down; the others go on."""

    def __init__(self, error_code: ErrorCode, message: str = "") -> None:
        super().__init__(error_code, message)
        self.error_code = error_code
        self.message = message
