"""Set quotas of clients."""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.configs import (
    AlterClientQuotasRequest,
    EntityDataRequest,
    EntryDataRequest,
    OpData,
)
from unit.server.simulated_broker import SimulatedBroker, SimulatedClient

Entity = dict[str, str | None]

# The one client's id is its host's name.
CLIENT: Entity = {"client-id": "client"}


def set_quota(broker: SimulatedBroker, entity: Entity, key: str, value: float | None) -> None:
    request = AlterClientQuotasRequest(
        entries=[
            EntryDataRequest(
                entity=[EntityDataRequest(entity_type=k, entity_name=n) for k, n in entity.items()],
                ops=[OpData(key=key, value=value or 0.0, remove=value is None)],
            )
        ],
        validate_only=False,
    )
    other = SimulatedClient(broker.world, "admin")
    assert other.ask(request, 1).entries[0].error_code == ErrorCode.NONE
    other.channel.close()
