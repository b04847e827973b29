"""Fencing of a broker's earlier lives by its epoch (KIP-631)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.result import Refusal
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.metadata.broker_registration import BrokerRegistration
    from barnabas.metadata.image import ClusterImage


def check_broker_epoch(image: ClusterImage, broker_id: int, epoch: int) -> BrokerRegistration:
    """The broker, if the epoch is that of its present life.

    Raises:
        Refusal: STALE_BROKER_EPOCH, also of a broker that is not registered (any more).
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise Refusal(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered")
    if broker.epoch != epoch:
        raise Refusal(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} has epoch {broker.epoch}, the request says {epoch}",
        )
    return broker
