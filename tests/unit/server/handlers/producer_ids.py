"""Requests for producer ids."""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.metadata import FindCoordinatorRequest
from barnabas.protocol.messages.transactions import InitProducerIdRequest
from unit.server.simulated_broker import SimulatedBroker


def initialize(broker: SimulatedBroker, transactional_id: str) -> tuple[int, int]:
    """Return producer id and epoch of a new transactional id."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=-1,
        producer_epoch=-1,
    )
    for _ in range(100):
        found = broker.ask(request, 4)
        if found.error_code == ErrorCode.NONE:
            return found.producer_id, found.producer_epoch
        # The coordinator's topic is created by this request.
        broker.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]), 4)
        broker.world.run_for(100)
    raise AssertionError(ErrorCode(found.error_code))
