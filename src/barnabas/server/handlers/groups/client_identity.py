"""The identity of a client, as groups store it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.classic.classic_membership import ClientIdentity

if TYPE_CHECKING:
    from barnabas.server.dispatch.request import RequestContext


def client_of(context: RequestContext) -> ClientIdentity:
    """Return the client of a request, with a slash before its address, as Java prints it."""
    return ClientIdentity(context.client_id or "", f"/{context.host}")
