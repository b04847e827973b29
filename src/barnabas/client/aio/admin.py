"""`barnabas.aio.Admin`: all admin calls on the running asyncio loop.

Each method is the coroutine form of the method of the same name in the blocking `Admin`, which
documents arguments, results and errors.
"""

from __future__ import annotations

import asyncio
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from barnabas.client.admin.call import Pause, Plan
from barnabas.client.admin.plans import cluster, configs, groups, security, topics, transactions
from barnabas.client.admin.sender import AdminSender
from barnabas.client.aio.session import AsyncClosedByUser, AsyncSession, AsyncWithBlock
from barnabas.client.config import ClientConfig, keys_with_servers
from barnabas.client.session.waiter import run_plan_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from barnabas.client.admin.call import Step

__all__ = ["Admin"]

P = ParamSpec("P")
T = TypeVar("T")
_MS_PER_S = 1000


def _awaited(
    plan: Callable[Concatenate[AdminSender, P], Plan[T]],
) -> Callable[Concatenate[Admin, P], Awaitable[T]]:
    """Return a method that runs a plan to its end when it is awaited."""

    @wraps(plan)
    async def method(admin: Admin, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await admin.run(plan(admin.sender, *args, **kwargs))

    return method


class Admin(AsyncWithBlock, AsyncClosedByUser):
    """Administrate a cluster. Use it in an `async with` block, or await `close()`.

    Args:
        bootstrap_servers: "HOST:PORT,HOST:PORT" or a list of "HOST:PORT" strings.
        config: As for the blocking `barnabas.Admin`.
    """

    def __init__(self, bootstrap_servers: str | Sequence[str] | None = None, **config: Any) -> None:
        checked = ClientConfig.parse(keys_with_servers(bootstrap_servers, config))
        self._session = AsyncSession(checked, "admin client", self._on_end_of_loop)
        self.sender = AdminSender(self._session.cluster, self._session.coordinators)
        self._watch(self._session.lifetime)

    async def _end(self, timeout: float) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def run(self, plan: Plan[T]) -> T:
        """Run a plan to its end and return its result.

        Raises:
            ClientError: The plan failed with this error.
        """
        self._session.check_usable()
        return await run_plan_async(plan, self._perform)

    async def _perform(self, step: Step) -> Any:
        if isinstance(step, Pause):
            await asyncio.sleep(step.delay_ms / _MS_PER_S)
            return None
        return await self._session.wait_all(step)

    # Topics

    create_topics = _awaited(topics.create_topics)
    delete_topics = _awaited(topics.delete_topics)
    delete_topics_by_id = _awaited(topics.delete_topics_by_id)
    create_partitions = _awaited(topics.create_partitions)
    list_topics = _awaited(topics.list_topics)
    describe_topics = _awaited(topics.describe_topics)
    describe_topic_partitions = _awaited(topics.describe_topic_partitions)
    delete_records = _awaited(topics.delete_records)
    elect_leaders = _awaited(topics.elect_leaders)
    describe_producers = _awaited(topics.describe_producers)
    list_offsets = _awaited(topics.list_offsets)
    list_replica_offsets = _awaited(topics.list_replica_offsets)
    alter_reassignments = _awaited(topics.alter_reassignments)
    list_reassignments = _awaited(topics.list_reassignments)

    # Configs and quotas

    describe_configs = _awaited(configs.describe_configs)
    alter_configs = _awaited(configs.alter_configs)
    change_config_list = _awaited(configs.change_config_list)
    replace_configs = _awaited(configs.replace_configs)
    list_config_resources = _awaited(configs.list_config_resources)
    describe_quotas = _awaited(configs.describe_quotas)
    alter_quotas = _awaited(configs.alter_quotas)

    # Groups

    list_groups = _awaited(groups.list_groups)
    describe_groups = _awaited(groups.describe_groups)
    coordinators = _awaited(groups.coordinators)
    delete_groups = _awaited(groups.delete_groups)
    list_group_offsets = _awaited(groups.list_group_offsets)
    alter_group_offsets = _awaited(groups.alter_group_offsets)
    delete_offsets = _awaited(groups.delete_offsets)
    remove_members = _awaited(groups.remove_members)
    describe_share_groups = _awaited(groups.describe_share_groups)
    describe_share_group_offsets = _awaited(groups.describe_share_group_offsets)
    describe_share_group_states = _awaited(groups.describe_share_group_states)
    alter_share_group_offsets = _awaited(groups.alter_share_group_offsets)
    delete_share_group_offsets = _awaited(groups.delete_share_group_offsets)
    describe_streams_groups = _awaited(groups.describe_streams_groups)

    # The cluster

    describe_cluster = _awaited(cluster.describe_cluster)
    describe_versions = _awaited(cluster.describe_versions)
    update_features = _awaited(cluster.update_features)
    unregister_broker = _awaited(cluster.unregister_broker)
    unregister_controller = _awaited(cluster.unregister_controller)
    describe_quorum = _awaited(cluster.describe_quorum)
    add_voter = _awaited(cluster.add_voter)
    remove_voter = _awaited(cluster.remove_voter)
    describe_log_dirs = _awaited(cluster.describe_log_dirs)
    describe_replica_log_dirs = _awaited(cluster.describe_replica_log_dirs)
    alter_replica_log_dirs = _awaited(cluster.alter_replica_log_dirs)

    # Transactions

    list_transactions = _awaited(transactions.list_transactions)
    describe_transactions = _awaited(transactions.describe_transactions)
    fence_producers = _awaited(transactions.fence_producers)
    end_transactions = _awaited(transactions.end_transactions)
    abort_transaction = _awaited(transactions.abort_transaction)
    terminate_transaction = _awaited(transactions.terminate_transaction)

    # Security

    describe_acls = _awaited(security.describe_acls)
    create_acls = _awaited(security.create_acls)
    delete_acls = _awaited(security.delete_acls)
    describe_scram_credentials = _awaited(security.describe_scram_credentials)
    alter_scram_credentials = _awaited(security.alter_scram_credentials)
    create_delegation_token = _awaited(security.create_delegation_token)
    renew_delegation_token = _awaited(security.renew_delegation_token)
    expire_delegation_token = _awaited(security.expire_delegation_token)
    describe_delegation_tokens = _awaited(security.describe_delegation_tokens)
