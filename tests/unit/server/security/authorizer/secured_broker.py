"""A simulated broker with an authorizer, and clients whose principal the test chooses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.network.principal import Principal
from barnabas.protocol.messages.connection import ApiVersionsRequest
from barnabas.protocol.messages.security import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
)
from barnabas.protocol.resources import AclOperation, AclPermission, AclResourceType, PatternType
from barnabas.server.configs.config import STANDARD_AUTHORIZER
from unit.server.simulated_broker import SimulatedBroker, SimulatedClient

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.network.connection import Connection


TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    # The test's first client, and the other nodes.
    "super.users": "User:ANONYMOUS",
}
MARY = Principal("mary")


class SecuredBroker(SimulatedBroker):
    """Its own client may do everything; `mary` has no rights at first."""

    def __init__(self, **settings: str) -> None:
        given = {key.replace(".", "_"): value for key, value in SETTINGS.items()}
        super().__init__(**{**given, **settings})
        self.mary = self.client_of(MARY)

    def client_of(self, principal: Principal) -> SimulatedClient:
        """A new connection of a client."""
        assert self.node.broker is not None
        name = f"{principal.name}-{len(self.node.broker.listeners[0].connections)}"
        client = SimulatedClient(self.world, name)
        client.ask(ApiVersionsRequest(), 0)
        log_in(self.node.broker.listeners[0].connections, name, principal)
        return client

    def allow(self, *acls: AclCreation) -> None:
        """Create entries."""
        created = self.ask(CreateAclsRequest(creations=list(acls)), 3)
        assert all(each.error_code == 0 for each in created.results), created

    def revoke(self) -> None:
        """Delete all entries."""
        anything = DeleteAclsFilter(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        deleted: Any = self.ask(DeleteAclsRequest(filters=[anything]), 3)
        assert deleted.filter_results[0].error_code == 0, deleted


def log_in(connections: Iterable[Connection], host: str, principal: Principal) -> None:
    """Give a principal to the connections from a host, as an authentication would do."""
    found = [each for each in connections if each.peer.startswith(f"{host}:")]
    assert found, host
    for connection in found:
        connection.principal = principal


def allowing(
    operation: AclOperation,
    name: str,
    kind: AclResourceType = TOPIC,
    pattern: PatternType = PatternType.LITERAL,
    permission: AclPermission = AclPermission.ALLOW,
) -> AclCreation:
    """An entry for mary."""
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=str(MARY),
        host="*",
        operation=operation,
        permission_type=permission,
    )
