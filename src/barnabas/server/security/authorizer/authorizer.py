"""Decisions whether a client may do an operation (Kafka: StandardAuthorizer).

Decisions are cached until an access control entry changes, because clients repeat their requests.
Denied operations are logged at a limited rate: a client that repeats denied requests must not fill
the disk.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.metadata.acl_decision import Action, canonical_address, decide, is_allowed_somewhere
from barnabas.protocol.resources import (
    CLUSTER_NAME,
    LISTED_OPERATIONS,
    AclOperation,
    AclResourceType,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.metadata.acls import AclsImage
    from barnabas.metadata.image import ClusterImage
    from barnabas.runtime.clock import Clock
    from barnabas.server.configs.config import AuthorizerConfig
    from barnabas.server.dispatch.request import RequestContext
    from barnabas.settings.definition import ParsedConfig

    # Principal, host, operation, resource type, name. The name is None for any resource.
    _Key = tuple[str, str, int, int, str | None]


# Maximum number of cached decisions. The cache is emptied at this limit.
DECISIONS_MAX = 10_000
# Decisions about longer names are not cached, because clients choose the names.
_NAME_CHARS_MAX = 256
# If any resource of a type is sufficient, Kafka first checks a resource with this name.
_ANY_NAME = "hardcode"


class NotLoadedError(Exception):
    """The access control entries are not loaded, so that only super users can be authorized."""


class Authorizer:
    """Decides by the latest image, the super users and the default."""

    __slots__ = ("_acls", "_config", "_decisions", "_find_acls")

    def __init__(self, config: AuthorizerConfig, find_acls: Callable[[], AclsImage | None]) -> None:
        """Create an authorizer without cached decisions.

        Args:
            config: super users and default.
            find_acls: returns the current entries; None before they are loaded.
        """
        self._config = config
        self._find_acls = find_acls
        # The entries on which the cached decisions are based.
        self._acls: AclsImage | None = None
        self._decisions: dict[_Key, bool] = {}

    @property
    def is_loaded(self) -> bool:
        """Whether the entries are loaded. Until then, only super users are known."""
        return self._find_acls() is not None

    def allows(
        self, principal: str, host: str, operation: int, resource_type: int, name: str
    ) -> bool:
        """Return whether a principal may do an operation on a resource.

        Args:
            principal: TYPE:NAME.
            host: address of the client, from `canonical_address`.
            operation: an `AclOperation`.
            resource_type: an `AclResourceType`.
            name: name of the resource, which is not a pattern.

        Raises:
            NotLoadedError: the entries are not loaded, and the principal is no super user.
        """
        acls = self._find_acls()
        if acls is not self._acls:
            self._acls = acls
            self._decisions.clear()
        key = (principal, host, operation, resource_type, name)
        decided = self._decisions.get(key)
        if decided is None:
            decided = self._decide(Action(principal, host, operation, resource_type, name))
            self._remember(key, decided)
        return decided

    def allows_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Return whether a principal may do an operation on at least one resource of a type.

        Raises:
            NotLoadedError: the entries are not loaded, and the principal is no super user.
        """
        if self.allows(principal, host, operation, resource_type, _ANY_NAME):
            return True
        key = (principal, host, operation, resource_type, None)
        decided = self._decisions.get(key)
        if decided is None:
            assert self._acls is not None, "`allows` has loaded the entries"
            action = Action(principal, host, operation, resource_type, "")
            decided = is_allowed_somewhere(self._acls, action)
            self._remember(key, decided)
        return decided

    def _decide(self, action: Action) -> bool:
        if action.principal in self._config.super_users:
            return True
        if self._acls is None:
            raise NotLoadedError(action.principal)
        by_default = self._config.allows_by_default
        return decide(self._acls, action).is_allowed(by_default=by_default)

    def _remember(self, key: _Key, decided: bool) -> None:
        if key[4] is not None and len(key[4]) > _NAME_CHARS_MAX:
            return
        if len(self._decisions) >= DECISIONS_MAX:
            self._decisions.clear()
        self._decisions[key] = decided


_log = logging.getLogger("barnabas.authorizer")

# Maximum number of lines in a burst.
BURST_LINES = 100
# Maximum average number of lines per second.
LINES_PER_SECOND = 5.0
# Maximum length of names that clients choose.
_LOGGED_CHARS_MAX = 249


class AuditLog:
    """Logs denied operations at a limited rate."""

    __slots__ = ("_clock", "_filled_ms", "_left_out", "_lines")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Lines that may be logged now. Grows with time up to BURST_LINES.
        self._lines = float(BURST_LINES)
        # When `_lines` was computed, in ms of the monotonic clock.
        self._filled_ms = clock.monotonic_ms()
        # Number of denials since the last line that were not logged.
        self._left_out = 0

    def denied(self, action: Action, operation: str, resource: str, api: str) -> None:
        """Log a denied operation.

        Args:
            action: the principal, host, operation and resource.
            operation: name of the operation.
            resource: name of the resource type.
            api: name of the API.
        """
        now_ms = self._clock.monotonic_ms()
        earned = (now_ms - self._filled_ms) * LINES_PER_SECOND / 1000.0
        self._lines = min(float(BURST_LINES), self._lines + earned)
        self._filled_ms = now_ms
        if self._lines < 1.0:
            self._left_out += 1
            return
        self._lines -= 1.0
        if self._left_out:
            _log.info("authorizer omitted lines: count=%d", self._left_out)
            self._left_out = 0
        _log.info(
            "authorizer denied principal=%s operation=%s resource=%s:%s host=%s api=%s",
            _text(action.principal),
            operation,
            resource,
            _text(action.name),
            _text(action.host),
            api,
        )


def _text(name: str) -> str:
    """Return a name that a client has chosen, without line breaks and of a limited length."""
    if len(name) > _LOGGED_CHARS_MAX:
        name = name[:_LOGGED_CHARS_MAX] + "..."
    return name if name.isprintable() and " " not in name else repr(name)


_CLUSTER = int(AclResourceType.CLUSTER)


class Rights:
    """Rights of one client, from the authorizer. Denied operations are logged."""

    __slots__ = ("_audit", "_authorizer", "_context", "_host", "_principal", "config", "image")

    def __init__(
        self,
        context: RequestContext,
        authorizer: Authorizer,
        audit: AuditLog,
        image: ClusterImage,
        config: ParsedConfig,
    ) -> None:
        self._context = context
        self._authorizer = authorizer
        self._audit = audit
        self._principal = str(context.principal)
        self._host = canonical_address(context.host)
        # The latest metadata image, for the names of topic ids.
        self.image = image
        # Configuration of this node at its start.
        self.config = config

    @property
    def version(self) -> int:
        """Version of the request."""
        return self._context.version

    @property
    def is_loaded(self) -> bool:
        """Whether the access control entries are loaded. Until then, only super users are known."""
        return self._authorizer.is_loaded

    def allows(
        self, operation: int, resource_type: int, name: str, *, is_logged: bool = True
    ) -> bool:
        """See `Access.allows`."""
        try:
            if self._authorizer.allows(self._principal, self._host, operation, resource_type, name):
                return True
        except NotLoadedError:
            pass
        if is_logged:
            self._log(operation, resource_type, name)
        return False

    def allows_on_cluster(self, operation: int, *, is_logged: bool = True) -> bool:
        """Return whether the client may do an operation on the cluster."""
        return self.allows(operation, _CLUSTER, CLUSTER_NAME, is_logged=is_logged)

    def allows_any(self, operation: int, resource_type: int) -> bool:
        """Return whether the client may do an operation on at least one resource of a type."""
        try:
            if self._authorizer.allows_any(self._principal, self._host, operation, resource_type):
                return True
        except NotLoadedError:
            pass
        self._log(operation, resource_type, "*")
        return False

    def operations(self, resource_type: int, name: str) -> int:
        """See `Access.operations`."""
        return sum(
            1 << operation
            for operation in LISTED_OPERATIONS[resource_type]
            if self.allows(operation, resource_type, name, is_logged=False)
        )

    def _log(self, operation: int, resource_type: int, name: str) -> None:
        self._audit.denied(
            Action(self._principal, self._host, operation, resource_type, name),
            AclOperation(operation).name,
            AclResourceType(resource_type).name,
            self._context.source[0],
        )
