"""Configuration keys of the authorizer (Kafka: ServerConfigs, StandardAuthorizer)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.settings.definition import ConfigDefinition, ConfigKey, ConfigType
from barnabas.settings.range import one_of, satisfying

if TYPE_CHECKING:
    from barnabas.settings.definition import ParsedConfig
    from barnabas.settings.range import ConfigValue

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def parse_super_users(text: str) -> frozenset[str] | None:
    """Parse "TYPE:NAME;..." into principals, and return None for invalid text."""
    users = [part.strip() for part in text.split(";")]
    found = frozenset(user for user in users if user)
    return found if all(":" in user for user in found) else None


def _are_super_users(value: ConfigValue) -> bool:
    return isinstance(value, str) and parse_super_users(value) is not None


AUTHORIZER_KEYS = ConfigDefinition(
    [
        ConfigKey(
            "authorizer.class.name",
            ConfigType.STRING,
            "",
            "The authorizer. Empty: every client may do everything. StandardAuthorizer denies every"
            " operation that no access control entry allows.",
            one_of("", STANDARD_AUTHORIZER),
        ),
        ConfigKey(
            "super.users",
            ConfigType.STRING,
            "",
            "Principals that may do everything, TYPE:NAME each, separated by semicolons.",
            satisfying("TYPE:NAME;...", _are_super_users),
        ),
        ConfigKey(
            "allow.everyone.if.no.acl.found",
            ConfigType.BOOLEAN,
            False,
            "Whether everything is allowed on a resource without any access control entry.",
        ),
        ConfigKey(
            "early.start.listeners",
            ConfigType.LIST,
            None,
            "Listeners that serve requests before the access control entries are loaded; the"
            " controller listeners if not set. Only super users are allowed then.",
        ),
    ]
)


class AuthorizerConfig(msgspec.Struct, frozen=True):
    """Settings of the authorizer besides the access control entries."""

    # Principals that may do everything.
    super_users: frozenset[str] = frozenset()
    # Whether everything is allowed on resources without any entry.
    allows_by_default: bool = False

    @classmethod
    def of(cls, config: ParsedConfig) -> AuthorizerConfig | None:
        """Return the authorizer's configuration; None if everything is allowed."""
        if not config.string("authorizer.class.name"):
            return None
        return cls(
            parse_super_users(config.string("super.users")) or frozenset(),
            config.boolean("allow.everyone.if.no.acl.found"),
        )
