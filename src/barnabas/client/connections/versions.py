"""API versions of the client, and their negotiation with a broker (KIP-35).

The lowest versions are those of Apache Kafka 2.1, the highest those that the client uses.
"""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey, last_stable_version

__all__ = ["CLIENT_VERSIONS", "VersionTable"]

# Last versions that identify topics by name; later versions use topic ids.
FETCH_MAX_BY_NAME = 12
PRODUCE_MAX_BY_NAME = 12
OFFSET_COMMIT_MAX_BY_NAME = 9
OFFSET_FETCH_MAX_BY_NAME = 9
# In later versions, producing to a partition adds it to the transaction (KIP-890).
PRODUCE_MAX_BEFORE_TRANSACTIONS_V2 = 11

CLIENT_VERSIONS: dict[int, tuple[int, int]] = {
    ApiKey.PRODUCE: (3, 13),
    ApiKey.FETCH: (4, 17),
    ApiKey.LIST_OFFSETS: (1, 11),
    ApiKey.METADATA: (1, 13),
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.SYNC_GROUP: (0, 5),
    # Before version 4, brokers omit features that may have level 0.
    ApiKey.API_VERSIONS: (0, 4),
    # Consumers may send this request from version 3 on.
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (3, 4),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.INIT_PRODUCER_ID: (0, 6),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.END_TXN: (0, 5),
    # Version 6 differs only in using topic ids instead of names.
    ApiKey.TXN_OFFSET_COMMIT: (0, 5),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 6),
    ApiKey.DELETE_GROUPS: (0, 3),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.DESCRIBE_LOG_DIRS: (0, 5),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.DESCRIBE_QUORUM: (0, 2),
    ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 2),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.WRITE_TXN_MARKERS: (0, 2),
    ApiKey.ALTER_CONFIGS: (0, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (0, 2),
    ApiKey.DESCRIBE_ACLS: (1, 3),
    ApiKey.CREATE_ACLS: (1, 3),
    ApiKey.DELETE_ACLS: (1, 3),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.CREATE_DELEGATION_TOKEN: (1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: (1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (1, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (1, 3),
    ApiKey.UPDATE_FEATURES: (0, 2),
    ApiKey.UNREGISTER_BROKER: (0, 0),
    ApiKey.UNREGISTER_CONTROLLER: (0, 0),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0),
    ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1),
    ApiKey.SHARE_GROUP_DESCRIBE: (1, 1),
    ApiKey.SHARE_FETCH: (1, 2),
    ApiKey.SHARE_ACKNOWLEDGE: (1, 2),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (0, 0),
    ApiKey.READ_SHARE_GROUP_STATE: (0, 0),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (0, 1),
    ApiKey.STREAMS_GROUP_DESCRIBE: (0, 1),
    ApiKey.ADD_RAFT_VOTER: (0, 1),
    ApiKey.REMOVE_RAFT_VOTER: (0, 0),
}


class VersionTable:
    """The API versions that one broker supports."""

    __slots__ = ("_ranges",)

    def __init__(self, ranges: dict[int, tuple[int, int]]) -> None:
        self._ranges = ranges

    def choose(self, api_key: int, max_version: int | None = None) -> int | None:
        """Return the highest version of an API that both sides support, None if there is none.

        Args:
            api_key: the API.
            max_version: an upper bound, such as the last version without topic ids; None for the
                last stable version.
        """
        theirs = self._ranges.get(api_key)
        if theirs is None:
            return None
        low, high = CLIENT_VERSIONS[api_key]
        bound = last_stable_version(api_key) if max_version is None else max_version
        version = min(high, theirs[1], bound)
        return version if version >= max(low, theirs[0]) else None

    def explain(self, api_key: int) -> str:
        """Return an explanation of why `choose` returned None."""
        theirs = self._ranges.get(api_key)
        low, high = CLIENT_VERSIONS[api_key]
        if theirs is None:
            return "the broker does not offer this API at all"
        return f"the broker offers versions {theirs[0]}-{theirs[1]}, this client {low}-{high}"
