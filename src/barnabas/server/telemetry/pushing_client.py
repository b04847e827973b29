"""Attributes of a client that pushes metrics, by the names that subscriptions match (KIP-714)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.client_metrics_configs import (
    CLIENT_ID,
    CLIENT_INSTANCE_ID,
    CLIENT_SOFTWARE_NAME,
    CLIENT_SOFTWARE_VERSION,
    CLIENT_SOURCE_ADDRESS,
    CLIENT_SOURCE_PORT,
)
from barnabas.protocol.primitives import uuid_to_string
from barnabas.server.dispatch.client_software import UNKNOWN_SOFTWARE, ClientSoftware

if TYPE_CHECKING:
    from barnabas.server.dispatch.request import RequestContext


def pushing_client(context: RequestContext, instance_id: bytes) -> dict[str, str]:
    """Return the attributes of the client from the request and its connection.

    The principal is for the receiver. Subscriptions cannot match it.
    """
    session = context.connection.session
    software = session if isinstance(session, ClientSoftware) else UNKNOWN_SOFTWARE
    address, _, port = context.connection.peer.rpartition(":")
    return {
        CLIENT_INSTANCE_ID: uuid_to_string(instance_id),
        CLIENT_ID: context.client_id or "",
        CLIENT_SOFTWARE_NAME: software.name,
        CLIENT_SOFTWARE_VERSION: software.version,
        CLIENT_SOURCE_ADDRESS: address,
        CLIENT_SOURCE_PORT: port,
        "principal": str(context.principal),
    }
