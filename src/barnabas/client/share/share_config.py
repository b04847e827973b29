"""Which configuration keys a share consumer accepts (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.client.config import ClientConfig, keys_with_servers
from barnabas.client.consumer.errors import InvalidGroupIdError
from barnabas.client.consumer.user_objects import take_user_objects
from barnabas.client.errors import ClientConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.consumer.user_objects import Deserializing

__all__ = ["share_consumer_config"]

# The keys that Kafka's share consumer refuses. Either the group's configuration decides the matter,
# or it does not exist in share groups.
_REFUSED = (
    "auto_offset_reset",
    "enable_auto_commit",
    "group_instance_id",
    "isolation_level",
    "partition_assignment_strategy",
    "interceptor_classes",
    "interceptors",
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "group_protocol",
    "group_remote_assignor",
)


def share_consumer_config(
    bootstrap_servers: str | Sequence[str] | None,
    given: Mapping[str, Any],
    *,
    may_block: bool = True,
) -> tuple[ClientConfig, Deserializing]:
    """Return a share consumer's keyword arguments as a checked config and its deserializers.

    Args:
        bootstrap_servers: As given to the consumer.
        given: All other keyword arguments.
        may_block: Whether deserializers may block; see `take_user_objects`.

    Raises:
        ClientConfigError: A key is unknown or not supported by share consumers, or its value is
            invalid.
        InvalidGroupIdError: `group.id` is missing or blank.
    """
    refused = sorted(key for key in given if key.replace(".", "_") in _REFUSED)
    if refused:
        names = ", ".join(refused)
        raise ClientConfigError(
            f"share consumers do not support {names}: leave it out. Configs of the group decide "
            f"where reading starts and which isolation level applies (share.auto.offset.reset, "
            f"share.isolation.level)"
        )
    objects, keys = take_user_objects(given, may_block=may_block)
    config = ClientConfig.parse(keys_with_servers(bootstrap_servers, keys))
    if config.group_id is None or not config.group_id.strip():
        key = config.spell("group_id")
        raise InvalidGroupIdError(f"{key} is missing or blank: a share consumer needs a group")
    return config, objects.deserializing
