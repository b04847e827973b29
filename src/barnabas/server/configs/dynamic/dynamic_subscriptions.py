"""Subscriptions of a broker's components to dynamic keys. For topics see `metadata_follower`.

Every new dynamic key needs a subscription. A test checks that each dynamic key has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.replication.config import (
    FOLLOWER_THROTTLED_RATE,
    LEADER_THROTTLED_RATE,
    MOVES_THROTTLED_RATE,
    NUM_REPLICA_FETCHERS,
)
from barnabas.server.quotas.config import CONNECTION_KEYS
from barnabas.server.quotas.connection_bounds import connection_bounds
from barnabas.storage.config import (
    CLEANER_KEYS,
    HOLD_KEY,
    PRODUCER_EXPIRATION,
    TRANSACTION_VERIFICATION,
)

if TYPE_CHECKING:
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.server.configs.dynamic.dynamic_config import DynamicBrokerConfig
    from barnabas.server.quotas.connection_quotas import ConnectionQuotas
    from barnabas.settings.definition import ParsedConfig
    from barnabas.storage.manager.log_manager import LogManager


def subscribe_to_dynamic_keys(
    dynamic: DynamicBrokerConfig,
    logs: LogManager,
    replicas: ReplicaManager,
    connections: ConnectionQuotas,
) -> None:
    """Subscribe each component to the keys that it uses."""

    def apply_connection_bounds(config: ParsedConfig) -> None:
        connections.set_bounds(connection_bounds(config, dynamic.given))

    def apply_expiration(config: ParsedConfig) -> None:
        logs.set_producer_expiration(config.integer(PRODUCER_EXPIRATION))

    def apply_verification(config: ParsedConfig) -> None:
        logs.set_transaction_verification(config.boolean(TRANSACTION_VERIFICATION))

    def apply_retention_hold(config: ParsedConfig) -> None:
        logs.trusted_clock.hold_ms = config.integer(HOLD_KEY)

    def apply_replication(config: ParsedConfig) -> None:
        replicas.followed.resize(config.integer(NUM_REPLICA_FETCHERS))
        replicas.throttles.leader.bytes_per_second = config.integer(LEADER_THROTTLED_RATE)
        replicas.throttles.follower.bytes_per_second = config.integer(FOLLOWER_THROTTLED_RATE)
        replicas.throttles.moves.bytes_per_second = config.integer(MOVES_THROTTLED_RATE)

    dynamic.subscribe((key.name for key in CONNECTION_KEYS), apply_connection_bounds)
    dynamic.subscribe(CLEANER_KEYS, logs.cleaner.apply_broker_config)
    dynamic.subscribe((PRODUCER_EXPIRATION,), apply_expiration)
    dynamic.subscribe((TRANSACTION_VERIFICATION,), apply_verification)
    dynamic.subscribe((HOLD_KEY,), apply_retention_hold)
    rates = (LEADER_THROTTLED_RATE, FOLLOWER_THROTTLED_RATE, MOVES_THROTTLED_RATE)
    dynamic.subscribe((NUM_REPLICA_FETCHERS, *rates), apply_replication)
