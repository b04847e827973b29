"""InitProducerId 6 (KIP-939), which both brokers serve with unstable.api.versions.enable=true.

The brokers of these tests do not allow two-phase commit. `conformance/test_two_phase_commit.py`
tests brokers that allow it; there Kafka 4.4 does not keep prepared transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from differential.case import case
from differential.scene import exchange

if TYPE_CHECKING:
    from differential.request import Values
    from differential.scene import Scene
    from differential.side import Side

INIT_PRODUCER_ID = ApiKey.INIT_PRODUCER_ID
SIX = (6,)
FLAGS = [(False, False), (True, False), (False, True), (True, True)]


def initialize(transactional_id: str | None, **values: object) -> Values:
    return {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000, **values}


def await_coordinator(scene: Scene, *names: str) -> None:
    """Wait until coordinators serve the ids: the first request creates __transaction_state."""

    def is_ready(side: Side) -> bool:
        requested = {"coordinator_keys": list(names), "key_type": 1}
        found = exchange(side, ApiKey.FIND_COORDINATOR, 4, requested).coordinators
        if any(each.error_code for each in found):
            return False
        described = exchange(
            side, ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": list(names)}
        ).transaction_states
        known = (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return all(each.error_code in known for each in described)

    scene.until(is_ready)


@case(INIT_PRODUCER_ID, SIX)
def two_phases_that_are_not_allowed(scene: Scene) -> None:
    for enable, keep in FLAGS:
        name = f"two-phases-{enable}-{keep}"
        await_coordinator(scene, name)
        for timeout_ms in (60_000, 0, -1, 900_001, 0x7FFF_FFFF):
            requested = initialize(name, transaction_timeout_ms=timeout_ms)
            scene.compare({**requested, "enable_2pc": enable, "keep_prepared_txn": keep})


@case(INIT_PRODUCER_ID, SIX)
def two_phases_without_a_transactional_id(scene: Scene) -> None:
    for enable, keep in FLAGS:
        for name in (None, ""):
            scene.compare(initialize(name, enable_2pc=enable, keep_prepared_txn=keep))


@case(INIT_PRODUCER_ID, SIX)
def two_phases_of_a_producer_that_continues(scene: Scene) -> None:
    await_coordinator(scene, "continues")
    for enable, keep in FLAGS:
        for producer_id, epoch in ((-1, 0), (0, -1), (987_654, 3)):
            requested = initialize("continues", producer_id=producer_id, producer_epoch=epoch)
            scene.compare({**requested, "enable_2pc": enable, "keep_prepared_txn": keep})
