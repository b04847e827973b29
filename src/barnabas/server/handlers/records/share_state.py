"""Requests of brokers to the share coordinator (KIP-932), one function each.

InitializeShareGroupState (key 83, v0), ReadShareGroupState (84, v0), WriteShareGroupState (85,
v0-1), DeleteShareGroupState (86, v0) and ReadShareGroupStateSummary (87, v0-1). v1 adds the number
of completed deliveries (KIP-1226). Each function returns the handler of its API.
"""

from __future__ import annotations

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
    from barnabas.protocol.schema import Message
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies


def initialize_share_group_state(dependencies: BrokerDependencies) -> Handle:
    """Return the handler of InitializeShareGroupState, which the group coordinator sends."""
    return _handler(dependencies, INITIALIZE)


def read_share_group_state(dependencies: BrokerDependencies) -> Handle:
    """Return the handler of ReadShareGroupState, which leaders of topics' partitions send."""
    return _handler(dependencies, READ)


def write_share_group_state(dependencies: BrokerDependencies) -> Handle:
    """Return the handler of WriteShareGroupState, which leaders of topics' partitions send."""
    return _handler(dependencies, WRITE)


def delete_share_group_state(dependencies: BrokerDependencies) -> Handle:
    """Return the handler of DeleteShareGroupState, which the group coordinator sends."""
    return _handler(dependencies, DELETE)


def read_share_group_state_summary(dependencies: BrokerDependencies) -> Handle:
    """Return the handler of ReadShareGroupStateSummary, which the group coordinator sends."""
    return _handler(dependencies, READ_SUMMARY)


def _handler(dependencies: BrokerDependencies, api: StateApi) -> Handle:
    coordinator = dependencies.share_coordinator

    def handle(context: RequestContext, request: Any) -> Message | None:
        def resume() -> None:
            try:
                context.respond_in_slices(served.steps())
            except Exception as error:  # noqa: BLE001 - the same call completes other requests
                context.give_up(error)

        served = coordinator.request(api, request, resume)
        return context.in_slices(served.steps())

    return handle
