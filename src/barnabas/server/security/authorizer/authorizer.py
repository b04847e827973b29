"""The authorizer: whether a principal may do an operation on a resource (StandardAuthorizer).

Decisions are cached until an access control entry changes, because clients repeat their requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.acl_decision import Action, decide, is_allowed_somewhere

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.metadata.acls import AclsImage
    from barnabas.server.configs.authorizer_config import AuthorizerConfig

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
        """Args:
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
