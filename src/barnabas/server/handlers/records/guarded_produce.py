"""Produce with an authorizer: WRITE on each topic, and on the id of a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.acls import AclOperation, AclResourceType
from barnabas.protocol.errors import ErrorCode
from barnabas.record.batch import HEADER_SIZE
from barnabas.server.conversion.produced_records import Refusal
from barnabas.server.handlers.records.produce import ProduceHandler

if TYPE_CHECKING:
    from barnabas.protocol.messages.produce import ProduceRequest, TopicProduceData
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies
    from barnabas.server.handlers.records.produce import PendingProduce
    from barnabas.storage.topic_partition import TopicPartition

_WRITE = int(AclOperation.WRITE)
_TOPIC, _TRANSACTIONAL_ID = int(AclResourceType.TOPIC), int(AclResourceType.TRANSACTIONAL_ID)
_TOPIC_IDS_SINCE = 13
_NONE = ErrorCode.NONE
# Position of the lower byte of a batch's attributes, and its bit for transactions.
_ATTRIBUTES_POSITION = 22
_MAGIC_POSITION = 16
_MAGIC = 2
_TRANSACTIONAL_BIT = 0x10


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that appends records of clients that may write them."""
    return GuardedProduceHandler(dependencies).handle_produce


class GuardedProduceHandler(ProduceHandler):
    """Refuses topics and transactions that the client may not write."""

    __slots__ = ()

    def _append(
        self,
        pending: PendingProduce,
        request: ProduceRequest,
        entries: dict[TopicPartition, Any],
    ) -> None:
        transactional_id = request.transactional_id
        if transactional_id is not None and _is_transactional(request):
            access = pending.context.access
            assert access is not None, "the node has an authorizer"
            if not access.allows(_WRITE, _TRANSACTIONAL_ID, transactional_id):
                pending.refuse_all(Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
                pending.on_appended({})
                return
        super()._append(pending, request, entries)

    def _resolve(self, context: RequestContext, topic: TopicProduceData) -> tuple[str, ErrorCode]:
        name: str | None = topic.name
        if context.version >= _TOPIC_IDS_SINCE:
            name = self._cluster.topic_name(topic.topic_id)
        access = context.access
        assert access is not None, "the node has an authorizer"
        if name is not None and not access.allows(_WRITE, _TOPIC, name):
            return name, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return super()._resolve(context, topic)


def _is_transactional(request: ProduceRequest) -> bool:
    """Return whether any batch of a request belongs to a transaction."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if (
                isinstance(records, memoryview)
                and len(records) >= HEADER_SIZE
                and records[_MAGIC_POSITION] == _MAGIC
                and records[_ATTRIBUTES_POSITION] & _TRANSACTIONAL_BIT
            ):
                return True
    return False
