"""The admin clients: all calls, and the blocking ones: `client.admin`, and `barnabas.Admin`.

Each method returns when its operation is complete. A method for several resources returns a value
or an error for each. If one of several changes failed, the method raises `AdminResultsError`, which
holds all results, unless `raise_errors=False` is given. A failure of the whole call raises its
`ClientError`. The plans of the same names document the arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.client.admin import (
    acls,
    cluster,
    configs,
    credentials,
    group_descriptions,
    groups,
    log_dirs,
    partitions,
    share_groups,
    topics,
    transactions,
)
from barnabas.client.admin.sender import AdminSender, run
from barnabas.client.config import ClientConfig, keys_with_servers
from barnabas.client.session.lifetime import BoundToProcess, ClosedByUser, WithBlock
from barnabas.client.session.plans import PlanMethod, RunsPlans
from barnabas.client.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.client.admin.sender import Plan
    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.lookups import Coordinators
    from barnabas.client.session.session import Waiter

__all__ = ["Admin", "AdminCalls", "AdminClient"]

T = TypeVar("T")


class AdminCalls:
    """All admin calls; the subclasses run their plans."""

    # Topics

    create_topics = PlanMethod(topics.create_topics)
    delete_topics = PlanMethod(topics.delete_topics)
    delete_topics_by_id = PlanMethod(topics.delete_topics_by_id)
    create_partitions = PlanMethod(topics.create_partitions)
    list_topics = PlanMethod(topics.list_topics)
    describe_topics = PlanMethod(topics.describe_topics)
    describe_topic_partitions = PlanMethod(topics.describe_topic_partitions)
    delete_records = PlanMethod(partitions.delete_records)
    elect_leaders = PlanMethod(partitions.elect_leaders)
    describe_producers = PlanMethod(partitions.describe_producers)
    list_offsets = PlanMethod(partitions.list_offsets)
    list_replica_offsets = PlanMethod(partitions.list_replica_offsets)
    alter_reassignments = PlanMethod(partitions.alter_reassignments)
    list_reassignments = PlanMethod(partitions.list_reassignments)

    # Configs and quotas

    describe_configs = PlanMethod(configs.describe_configs)
    alter_configs = PlanMethod(configs.alter_configs)
    change_config_list = PlanMethod(configs.change_config_list)
    replace_configs = PlanMethod(configs.replace_configs)
    list_config_resources = PlanMethod(configs.list_config_resources)
    describe_quotas = PlanMethod(configs.describe_quotas)
    alter_quotas = PlanMethod(configs.alter_quotas)

    # Groups

    list_groups = PlanMethod(groups.list_groups)
    describe_groups = PlanMethod(group_descriptions.describe_groups)
    coordinators = PlanMethod(groups.coordinators)
    delete_groups = PlanMethod(groups.delete_groups)
    list_group_offsets = PlanMethod(groups.list_group_offsets)
    alter_group_offsets = PlanMethod(groups.alter_group_offsets)
    delete_offsets = PlanMethod(groups.delete_offsets)
    remove_members = PlanMethod(groups.remove_members)
    describe_share_groups = PlanMethod(group_descriptions.describe_share_groups)
    describe_share_group_offsets = PlanMethod(share_groups.describe_share_group_offsets)
    describe_share_group_states = PlanMethod(share_groups.describe_share_group_states)
    alter_share_group_offsets = PlanMethod(share_groups.alter_share_group_offsets)
    delete_share_group_offsets = PlanMethod(share_groups.delete_share_group_offsets)
    describe_streams_groups = PlanMethod(group_descriptions.describe_streams_groups)

    # The cluster

    describe_cluster = PlanMethod(cluster.describe_cluster)
    describe_versions = PlanMethod(cluster.describe_versions)
    update_features = PlanMethod(cluster.update_features)
    unregister_broker = PlanMethod(cluster.unregister_broker)
    unregister_controller = PlanMethod(cluster.unregister_controller)
    describe_quorum = PlanMethod(cluster.describe_quorum)
    add_voter = PlanMethod(cluster.add_voter)
    remove_voter = PlanMethod(cluster.remove_voter)
    describe_log_dirs = PlanMethod(log_dirs.describe_log_dirs)
    describe_replica_log_dirs = PlanMethod(log_dirs.describe_replica_log_dirs)
    alter_replica_log_dirs = PlanMethod(log_dirs.alter_replica_log_dirs)

    # Transactions

    list_transactions = PlanMethod(transactions.list_transactions)
    describe_transactions = PlanMethod(transactions.describe_transactions)
    fence_producers = PlanMethod(transactions.fence_producers)
    end_transactions = PlanMethod(transactions.end_transactions)
    abort_transaction = PlanMethod(transactions.abort_transaction)
    terminate_transaction = PlanMethod(transactions.terminate_transaction)

    # Security

    describe_acls = PlanMethod(acls.describe_acls)
    create_acls = PlanMethod(acls.create_acls)
    delete_acls = PlanMethod(acls.delete_acls)
    describe_scram_credentials = PlanMethod(credentials.describe_scram_credentials)
    alter_scram_credentials = PlanMethod(credentials.alter_scram_credentials)
    create_delegation_token = PlanMethod(credentials.create_delegation_token)
    renew_delegation_token = PlanMethod(credentials.renew_delegation_token)
    expire_delegation_token = PlanMethod(credentials.expire_delegation_token)
    describe_delegation_tokens = PlanMethod(credentials.describe_delegation_tokens)


class AdminClient(AdminCalls, BoundToProcess, RunsPlans):
    """Administrative operations on a cluster, over the connections of a client."""

    def __init__(self, cluster: Cluster, groups: Coordinators, waiter: Waiter) -> None:
        self.sender = AdminSender(cluster, groups)
        self._waiter = waiter

    def _run_plan(self, plan: Callable[..., Plan[T]], *args: Any, **kwargs: Any) -> T:
        return run(plan(self.sender, *args, **kwargs), self._waiter)


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
