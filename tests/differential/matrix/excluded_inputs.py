"""Inputs that the matrix does not send, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.api_table import ApiKey

if TYPE_CHECKING:
    from differential.matrix.valid_requests import Make

# Reasons that several inputs share.
_NEVER = "Kafka never responds"
_DROPS = "Kafka's controller fails and resigns"
_ALL = "a separate case compares all keys"
_OPERATION = "resources[0].configs[0].config_operation = "
NOT_SENT = {
    **{
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, f"{_OPERATION}{wrong}"): _DROPS
        for wrong in (-128, -1, 4, 127)
    },
    (ApiKey.PRODUCE, "topic_data[0].partition_data[0].records = null"): _NEVER,
    (ApiKey.JOIN_GROUP, "protocols twice"): _NEVER,
    (ApiKey.ADD_PARTITIONS_TO_TXN, "transactions = []"): _NEVER,
    (ApiKey.WRITE_TXN_MARKERS, "markers[0].topics twice"): _NEVER,
    (ApiKey.WRITE_TXN_MARKERS, "markers[0].topics[0].partition_indexes twice"): _NEVER,
    (ApiKey.ALTER_CONFIGS, "resources twice"): _NEVER,
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, "components[0].entity_type = 10000 letters"): _NEVER,
    (ApiKey.DESCRIBE_CONFIGS, "broker: resources[0].configuration_keys = null"): _ALL,
    (ApiKey.DESCRIBE_CONFIGS, "broker: resources[0].configuration_keys = []"): _ALL,
    **{
        (ApiKey.SHARE_FETCH, f"batch_size = {size}"): "Kafka acquires a range without records"
        for size in (-(1 << 31), -1)
    },
    **{
        (ApiKey.SHARE_FETCH, f"group_id = {group}"): "Kafka's response depends on a race between"
        " the timeout and the error for the missing state"
        for group in ("a new name", "10000 letters")
    },
    **{
        (
            ApiKey.SHARE_FETCH,
            f"max_wait_ms = {time}",
        ): "Kafka's response is empty while a previous fetch locks the share partition"
        for time in (-(1 << 31), -1)
    },
    **{
        (
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            f"groups[0].topics[0].partitions = {index}",
        ): "Kafka requests the state for 30 s before it responds"
        for index in (1000, (1 << 31) - 1)
    },
    (ApiKey.ADD_RAFT_VOTER, "listeners[0].name = ''"): "Kafka's process exits",
}

# Inputs that are not combined with others, each with the reason.
NOT_COMBINED = {
    (
        ApiKey.OFFSET_COMMIT,
        "group_id = ''",
    ): "a refused request leaves a group that other requests would find",
    (ApiKey.ALTER_CLIENT_QUOTAS, "entries[0].entity[0].entity_name = null"): "a quota"
    " for all clients would throttle the following requests",
    (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "groups twice"): "Kafka sends no response if the repeated"
    " group has an error",
    (ApiKey.SHARE_FETCH, "topics twice"): "Kafka's order is that of a hash table",
    (ApiKey.SHARE_ACKNOWLEDGE, "topics twice"): "Kafka's order is that of a hash table",
}


def is_sent(api: ApiKey, make: Make, label: str) -> bool:
    """Return whether an input is sent; a label may begin with the kind of the valid request."""
    kind = "broker" if "brokers" in make.__name__ else "topic"
    return (api, label) not in NOT_SENT and (api, f"{kind}: {label}") not in NOT_SENT
