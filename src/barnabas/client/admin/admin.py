"""The blocking admin clients: `client.admin`, and `barnabas.Admin` with its own connections.

Each method returns when its operation is complete. A method for several resources returns a value
or an error for each. If one of several changes failed, the method raises `AdminResultsError`, which
holds all results, unless `raise_errors=False` is given. A failure of the whole call raises its
`ClientError`. The arguments are documented at the plans of the same names in `plans/`.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from barnabas.client.admin.call import Plan, run
from barnabas.client.admin.plans import cluster, configs, groups, security, topics, transactions
from barnabas.client.admin.sender import AdminSender
from barnabas.client.config import ClientConfig, keys_with_servers
from barnabas.client.session.lifetime import BoundToProcess, ClosedByUser, WithBlock
from barnabas.client.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.coordinators import Coordinators
    from barnabas.client.session.waiter import Waiter

__all__ = ["Admin", "AdminClient"]

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    plan: Callable[Concatenate[AdminSender, P], Plan[T]],
) -> Callable[Concatenate[AdminClient, P], T]:
    """Return a method that runs a plan and waits for its result."""

    @wraps(plan)
    def method(admin: AdminClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(plan(admin.sender, *args, **kwargs), admin.waiter)

    return method


class AdminClient(BoundToProcess):
    """Administrative operations on a cluster, over the connections of a client."""

    def __init__(self, cluster: Cluster, groups: Coordinators, waiter: Waiter) -> None:
        self.sender = AdminSender(cluster, groups)
        self.waiter = waiter

    # Topics

    create_topics = _blocking(topics.create_topics)
    delete_topics = _blocking(topics.delete_topics)
    delete_topics_by_id = _blocking(topics.delete_topics_by_id)
    create_partitions = _blocking(topics.create_partitions)
    list_topics = _blocking(topics.list_topics)
    describe_topics = _blocking(topics.describe_topics)
    describe_topic_partitions = _blocking(topics.describe_topic_partitions)
    delete_records = _blocking(topics.delete_records)
    elect_leaders = _blocking(topics.elect_leaders)
    describe_producers = _blocking(topics.describe_producers)
    list_offsets = _blocking(topics.list_offsets)
    list_replica_offsets = _blocking(topics.list_replica_offsets)
    alter_reassignments = _blocking(topics.alter_reassignments)
    list_reassignments = _blocking(topics.list_reassignments)

    # Configs and quotas

    describe_configs = _blocking(configs.describe_configs)
    alter_configs = _blocking(configs.alter_configs)
    change_config_list = _blocking(configs.change_config_list)
    replace_configs = _blocking(configs.replace_configs)
    list_config_resources = _blocking(configs.list_config_resources)
    describe_quotas = _blocking(configs.describe_quotas)
    alter_quotas = _blocking(configs.alter_quotas)

    # Groups

    list_groups = _blocking(groups.list_groups)
    describe_groups = _blocking(groups.describe_groups)
    coordinators = _blocking(groups.coordinators)
    delete_groups = _blocking(groups.delete_groups)
    list_group_offsets = _blocking(groups.list_group_offsets)
    alter_group_offsets = _blocking(groups.alter_group_offsets)
    delete_offsets = _blocking(groups.delete_offsets)
    remove_members = _blocking(groups.remove_members)
    describe_share_groups = _blocking(groups.describe_share_groups)
    describe_share_group_offsets = _blocking(groups.describe_share_group_offsets)
    describe_share_group_states = _blocking(groups.describe_share_group_states)
    alter_share_group_offsets = _blocking(groups.alter_share_group_offsets)
    delete_share_group_offsets = _blocking(groups.delete_share_group_offsets)
    describe_streams_groups = _blocking(groups.describe_streams_groups)

    # The cluster

    describe_cluster = _blocking(cluster.describe_cluster)
    describe_versions = _blocking(cluster.describe_versions)
    update_features = _blocking(cluster.update_features)
    unregister_broker = _blocking(cluster.unregister_broker)
    unregister_controller = _blocking(cluster.unregister_controller)
    describe_quorum = _blocking(cluster.describe_quorum)
    add_voter = _blocking(cluster.add_voter)
    remove_voter = _blocking(cluster.remove_voter)
    describe_log_dirs = _blocking(cluster.describe_log_dirs)
    describe_replica_log_dirs = _blocking(cluster.describe_replica_log_dirs)
    alter_replica_log_dirs = _blocking(cluster.alter_replica_log_dirs)

    # Transactions

    list_transactions = _blocking(transactions.list_transactions)
    describe_transactions = _blocking(transactions.describe_transactions)
    fence_producers = _blocking(transactions.fence_producers)
    end_transactions = _blocking(transactions.end_transactions)
    abort_transaction = _blocking(transactions.abort_transaction)
    terminate_transaction = _blocking(transactions.terminate_transaction)

    # Security

    describe_acls = _blocking(security.describe_acls)
    create_acls = _blocking(security.create_acls)
    delete_acls = _blocking(security.delete_acls)
    describe_scram_credentials = _blocking(security.describe_scram_credentials)
    alter_scram_credentials = _blocking(security.alter_scram_credentials)
    create_delegation_token = _blocking(security.create_delegation_token)
    renew_delegation_token = _blocking(security.renew_delegation_token)
    expire_delegation_token = _blocking(security.expire_delegation_token)
    describe_delegation_tokens = _blocking(security.describe_delegation_tokens)


class Admin(ClosedByUser, WithBlock, AdminClient):
    """Administrative operations on a cluster. Use it in a `with` block, or call `close()`.

    Args:
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of such strings.
        config: Kafka's client settings with "_" for ".".

    Raises:
        ClientConfigError: a setting is unknown or has an invalid value.
    """

    def __init__(self, bootstrap_servers: str | Sequence[str] | None = None, **config: Any) -> None:
        checked = ClientConfig.parse(keys_with_servers(bootstrap_servers, config))
        self._session = Session(checked, "admin client")
        super().__init__(self._session.cluster, self._session.coordinators, self._session.waiter)
        self._watch(self._session.lifetime)

    def close(self) -> None:
        """Close all connections; a second call does nothing."""
        self._session.close()

    def _close_at_exit(self, timeout: float) -> None:
        self.close()
