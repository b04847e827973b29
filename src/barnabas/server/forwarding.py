"""The way of a request that changes metadata: to the active controller (KIP-590).

A node is its own and only controller, so the way is a call. The caller does not see that: it hands
over a request and is called back with the response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.controller.controller import Controller
    from barnabas.controller.result import MutationLimit
    from barnabas.protocol.schema import Message

    Serve = Callable[..., None]


class Forwarding:
    """Sends a request to the active controller."""

    __slots__ = ("_local",)

    def __init__(self, controller: Controller) -> None:
        self._local: Mapping[int, Serve] = {
            ApiKey.CREATE_TOPICS: controller.create_topics,
            ApiKey.DELETE_TOPICS: controller.delete_topics,
            ApiKey.CREATE_PARTITIONS: controller.create_partitions,
            ApiKey.ALTER_CONFIGS: controller.alter_configs,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: controller.incremental_alter_configs,
            ApiKey.ALTER_CLIENT_QUOTAS: controller.alter_client_quotas,
            ApiKey.ALLOCATE_PRODUCER_IDS: controller.allocate_producer_ids,
            ApiKey.BROKER_REGISTRATION: controller.register_broker,
            ApiKey.BROKER_HEARTBEAT: controller.broker_heartbeat,
            ApiKey.ALTER_PARTITION: controller.alter_partition,
            ApiKey.UPDATE_FEATURES: controller.update_features,
            ApiKey.ELECT_LEADERS: controller.elect_leaders,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: controller.alter_partition_reassignments,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: controller.list_partition_reassignments,
            ApiKey.UNREGISTER_BROKER: controller.unregister_broker,
            ApiKey.ASSIGN_REPLICAS_TO_DIRS: controller.assign_replicas_to_dirs,
        }

    def send(
        self,
        request: Message,
        on_done: Callable[[Any], None],
        mutations: MutationLimit | None = None,
    ) -> None:
        """Have the controller serve `request`.

        Args:
            on_done: called once with the response, when what it says is committed; perhaps before
                this returns.
            mutations: what the asker may still change, for the APIs that count it.
        """
        serve = self._local[request.__api_key__]
        if mutations is None:
            serve(request, on_done)
        else:
            serve(request, on_done, mutations)
