"""Rejection of requests from an earlier registration of a broker, by broker epoch (KIP-631)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.result import Refusal
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.metadata.broker_registration import BrokerRegistration
    from barnabas.metadata.image import ClusterImage


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
