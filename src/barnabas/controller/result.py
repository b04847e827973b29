"""The result of a request: records to append, and the response to send once they are committed.

Requests from an earlier registration of a broker are refused by the broker epoch (KIP-631).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from barnabas.network.principal import ANONYMOUS
from barnabas.protocol.api_keys import response_class
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.metadata.broker_registration import BrokerRegistration
    from barnabas.metadata.image import ClusterImage
    from barnabas.network.principal import Principal
    from barnabas.protocol.schema import Message, Record


R = TypeVar("R")

# A record and the version to write it in.
VersionedRecord = tuple["Record", int]


class ControllerResult(msgspec.Struct, Generic[R], frozen=True):
    """Records to append, and the response to send once they are committed."""

    records: list[VersionedRecord]
    response: R
    # Whether all records must be in one batch. Otherwise they may be written in several batches.
    atomic: bool = True
    # Whether the result does not depend on the controller's state. The response is then sent even
    # if the request's timeout is 0.
    at_once: bool = False
    # Returns the final response once the records are committed; None if `response` is final.
    finish: Callable[[], R] | None = None


class MutationLimit(Protocol):
    """The partition mutation quota of one request, as far as the controller needs it."""

    def take(self, partitions: int) -> bool:
        """Count created or deleted partitions.

        Returns:
            False, without counting, if the quota is exceeded.
        """
        ...


class ControllerView(msgspec.Struct, frozen=True):
    """The cluster as of the last appended record, which may not be committed yet."""

    image: ClusterImage
    # Offset of the first record of the result.
    next_offset: int
    # Monotonic time, ms.
    now_ms: float = 0.0
    # The client's partition mutation quota; None for no limit.
    mutations: MutationLimit | None = None
    # The client that sent the request; anonymous for requests of this node.
    requester: Principal = ANONYMOUS

    def take_mutations(self, partitions: int) -> None:
        """Count created or deleted partitions (KIP-599).

        Raises:
            Refusal: THROTTLING_QUOTA_EXCEEDED; nothing was counted.
        """
        if self.mutations is not None and not self.mutations.take(partitions):
            error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
            raise Refusal(error, error.message)


class Refusal(Exception):  # noqa: N818 - an expected result, not a failure
    """One item of a request is refused; the other items are still handled."""

    def __init__(self, error_code: ErrorCode, message: str = "") -> None:
        super().__init__(error_code, message)
        self.error_code = error_code
        self.message = message


def refuse_as_a_whole(request: Message, refusal: Refusal) -> Any:
    """Return the error response to a whole request, for APIs with a top-level error.

    Fields without a default are empty or 0, except the error and its message.
    """
    response = response_class(request.__api_key__)
    values = {each.name: each.default() for each in response.__fields__ if each.is_required}
    if "error_message" in values:
        values["error_message"] = refusal.message
    return response(**{**values, "error_code": refusal.error_code})


def check_broker_epoch(image: ClusterImage, broker_id: int, epoch: int) -> BrokerRegistration:
    """Return the broker's registration if `epoch` is its current epoch.

    Raises:
        Refusal: STALE_BROKER_EPOCH, also if the broker is not registered.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise Refusal(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered")
    if broker.epoch != epoch:
        raise Refusal(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} has epoch {broker.epoch}, but the request has epoch {epoch}",
        )
    return broker
