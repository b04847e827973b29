"""Requests of brokers to the share coordinator (KIP-932), one function each.

InitializeShareGroupState (key 83, v0), ReadShareGroupState (84, v0), WriteShareGroupState (85,
v0-1), DeleteShareGroupState (86, v0) and ReadShareGroupStateSummary (87, v0-1). v1 adds the number
of completed deliveries (KIP-1226). Each function returns the handler of its API.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.coordinator.share.state_api import (
    DELETE,
    INITIALIZE,
    READ,
    READ_SUMMARY,
    WRITE,
    StateApi,
)

if TYPE_CHECKING:
    from barnabas.coordinator.share.share_coordinator import ShareCoordinator
    from barnabas.protocol.schema import Message
    from barnabas.server.dispatch.request import Handle, RequestContext


def _handler(api: StateApi, share_coordinator: ShareCoordinator) -> Handle:
    """Return the handler of an API."""
    coordinator = share_coordinator

    def handle(context: RequestContext, request: Any) -> Message | None:
        def resume() -> None:
            try:
                context.respond_in_slices(served.steps())
            except Exception as error:  # noqa: BLE001 - the same call completes other requests
                context.give_up(error)

        served = coordinator.request(api, request, resume)
        return context.in_slices(served.steps())

    return handle


# The group coordinator sends these.
initialize_share_group_state = partial(_handler, INITIALIZE)
delete_share_group_state = partial(_handler, DELETE)
read_share_group_state_summary = partial(_handler, READ_SUMMARY)
# Leaders of topics' partitions send these.
read_share_group_state = partial(_handler, READ)
write_share_group_state = partial(_handler, WRITE)
