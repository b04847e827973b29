"""What a request comes to: records to be written, and the response once they are committed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from barnabas.metadata.image import ClusterImage
    from barnabas.protocol.errors import ErrorCode
    from barnabas.protocol.schema import Record

R = TypeVar("R")

# A record and the version to write it in.
VersionedRecord = tuple["Record", int]


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[R]):
    """Records are written as one batch: all of them or none."""

    records: list[VersionedRecord]
    response: R


@dataclass(frozen=True, slots=True)
class ControllerView:
    """The cluster as of the last appended record, which may not be committed yet."""

    image: ClusterImage
    # Offset that the first record of the result will get.
    next_offset: int
    # Monotonic clock.
    now_ms: float = 0.0


@dataclass(slots=True)
class Refusal(Exception):  # noqa: N818 - an answer, not a failure
    """One item of a request is turned down; the others go on."""

    error_code: ErrorCode
    message: str = field(default="")
