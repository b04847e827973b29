"""Error responses for requests that no controller has served, in the form of their API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.controller.configs.client_quotas import refuse_alter_client_quotas
from barnabas.controller.configs.configs import (
    refuse_alter_configs,
    refuse_incremental_alter_configs,
)
from barnabas.controller.nodes.brokers import refuse_heartbeat
from barnabas.controller.nodes.features import refuse_update_features
from barnabas.controller.nodes.producer_ids import refuse_producer_ids
from barnabas.controller.nodes.registrations import refuse_registration
from barnabas.controller.nodes.unregistration import refuse_unregister_broker
from barnabas.controller.partitions.directories import refuse_assign_replicas
from barnabas.controller.partitions.in_sync_replicas import refuse_alter_partition
from barnabas.controller.partitions.leader_elections import refuse_elect_leaders
from barnabas.controller.partitions.reassignments import (
    refuse_alter_reassignments,
    refuse_list_reassignments,
)
from barnabas.controller.result import Refusal
from barnabas.controller.topics.partitions import refuse_create_partitions
from barnabas.controller.topics.topics import refuse_create_topics, refuse_delete_topics
from barnabas.protocol.api_keys import response_class
from barnabas.protocol.api_table import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from barnabas.protocol.errors import ErrorCode
    from barnabas.protocol.schema import Message

_ERROR, _WORDS = "error_code", "error_message"

_REFUSE: Mapping[int, Callable[[Any, Refusal], Message | Generator[None, None, Message]]] = {
    ApiKey.CREATE_TOPICS: refuse_create_topics,
    ApiKey.DELETE_TOPICS: refuse_delete_topics,
    ApiKey.CREATE_PARTITIONS: refuse_create_partitions,
    ApiKey.ALTER_CONFIGS: refuse_alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: refuse_incremental_alter_configs,
    ApiKey.ALTER_CLIENT_QUOTAS: refuse_alter_client_quotas,
    ApiKey.ALLOCATE_PRODUCER_IDS: refuse_producer_ids,
    ApiKey.BROKER_REGISTRATION: refuse_registration,
    ApiKey.BROKER_HEARTBEAT: refuse_heartbeat,
    ApiKey.ALTER_PARTITION: refuse_alter_partition,
    ApiKey.UPDATE_FEATURES: refuse_update_features,
    ApiKey.ELECT_LEADERS: refuse_elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: refuse_alter_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: refuse_list_reassignments,
    ApiKey.UNREGISTER_BROKER: refuse_unregister_broker,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: refuse_assign_replicas,
}


def refuse(
    request: Message, error: ErrorCode, words: str
) -> Message | Generator[None, None, Message]:
    """Return a response with `error` for the whole request, or a generator of the response.

    APIs with many items in a request use a generator, which yields after each item.
    """
    make = _REFUSE.get(request.__api_key__)
    if make is not None:
        return make(request, Refusal(error, words))
    # All other APIs have a top-level error, and at most an error message and arrays.
    response = response_class(request.__api_key__)
    values: dict[str, Any] = {
        each.name: words if each.name == _WORDS else []
        for each in response.__fields__
        if each.is_required and each.name != _ERROR
    }
    return response(**{_ERROR: error, **values})
