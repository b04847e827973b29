"""Removes brokers and controllers from the cluster metadata (KIP-631)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.admin.call import AdminCall, raise_error
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from barnabas.protocol.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message

__all__ = ["unregister_broker", "unregister_controller"]


def unregister_broker(node: int) -> AdminCall[bool]:
    """Unregister a broker that was shut down permanently."""

    def build(_version: int) -> Message:
        return UnregisterBrokerRequest(broker_id=node)

    def read(response: Message) -> bool:
        assert isinstance(response, UnregisterBrokerResponse)
        raise_error(response.error_code, f"unregister broker {node}", response.error_message)
        return True

    return AdminCall(ApiKey.UNREGISTER_BROKER, build, read)


def unregister_controller(node: int) -> AdminCall[bool]:
    """Unregister a controller that was shut down permanently."""

    def build(_version: int) -> Message:
        return UnregisterControllerRequest(controller_id=node)

    def read(response: Message) -> bool:
        assert isinstance(response, UnregisterControllerResponse)
        raise_error(response.error_code, f"unregister controller {node}", response.error_message)
        return True

    return AdminCall(ApiKey.UNREGISTER_CONTROLLER, build, read)
