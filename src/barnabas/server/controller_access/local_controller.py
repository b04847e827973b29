"""Access to the controller of this process by function calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_keys import api_row
from barnabas.protocol.api_table import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.controller.controller import Controller
    from barnabas.controller.result import MutationLimit
    from barnabas.protocol.schema import Message
    from barnabas.server.dispatch.request import RequestContext
    from barnabas.server.quorum.quorum_api import QuorumApi

    Serve = Callable[..., None]


class LocalController:
    """Calls the controller of this process. If it is inactive, the error is NOT_CONTROLLER."""

    __slots__ = ("_controller", "_describe_quorum", "_quorum", "_serve")

    def __init__(
        self,
        controller: Controller,
        describe_quorum: Callable[[Any, int], Message],
        quorum: Callable[[], QuorumApi],
    ) -> None:
        """Args:
        controller: the controller of this process.
        describe_quorum: returns the response to a DescribeQuorum request of a version.
        quorum: returns the API for voter changes, created at the first use.
        """
        self._controller = controller
        self._describe_quorum = describe_quorum
        self._quorum = quorum
        self._serve: Mapping[int, Serve] = {
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
            ApiKey.UNREGISTER_CONTROLLER: controller.unregister_controller,
            ApiKey.CONTROLLER_REGISTRATION: controller.register_controller,
            ApiKey.ASSIGN_REPLICAS_TO_DIRS: controller.assign_replicas_to_dirs,
        }

    @property
    def is_active(self) -> bool:
        """Whether the controller is active and serves requests."""
        return self._controller.is_active

    def send(
        self,
        request: Message,
        on_done: Callable[[Any], None],
        mutations: MutationLimit | None = None,
        client_context: RequestContext | None = None,
    ) -> None:
        """See `ControllerAccess.send`."""
        key = request.__api_key__
        serve = self._serve.get(key)
        if serve is None:
            version = (
                api_row(key).last_version if client_context is None else client_context.version
            )
            if key == ApiKey.DESCRIBE_QUORUM:
                on_done(self._describe_quorum(request, version))
            else:
                self._quorum().serve(request, version, on_done)
        elif mutations is None:
            serve(request, on_done)
        else:
            serve(request, on_done, mutations)
