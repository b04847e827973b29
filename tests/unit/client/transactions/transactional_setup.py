"""A transactional producer with a scripted coordinator, for tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from barnabas.client.connections.lookups import Coordinators
from barnabas.client.producer.producer_batch import Delivery
from barnabas.client.producer.producer_core import ProducerCore
from barnabas.client.producer.user_objects import ProducerParts
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.metadata import Coordinator, FindCoordinatorResponse
from barnabas.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.protocol.messages.transactions import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnResponse,
    InitProducerIdResponse,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.record.batch import read_header
from unit.client.scripted_cluster import TOPIC_ID, ScriptedCluster


class Setup:
    """A producer with a transactional id, ready for its first transaction."""

    def __init__(self, version: int = 1, **keys: object) -> None:
        self.cluster = ScriptedCluster(transactional_id="id", linger_ms=1000, **keys)
        self.cluster.features = {"transaction.version": version}
        cluster: Any = self.cluster
        session: Any = SimpleNamespace(
            cluster=cluster, coordinators=Coordinators(cluster), check_usable=lambda: None
        )
        self.core = ProducerCore(session, self.cluster.config, ProducerParts())
        self.calls = self.core.transactions
        self.manager = self.calls.manager

    def ready(self) -> Setup:
        outcome = self.calls.initialize()
        self.find()
        self.initialized(epoch=0)
        self.calls.claim(outcome)
        return self

    def begun(self) -> Setup:
        self.ready().calls.begin()
        return self

    def send(self, value: bytes = b"x", partition: int = 0) -> Delivery:
        batch = self.core.enqueue("t", None, value, partition, {}, 0)
        assert batch is not None
        self.core.flush()
        self.cluster.time.advance(0)
        return Delivery(batch, batch.count - 1, 0, None)

    # Answers

    def next(self, api_key: ApiKey, version: int) -> tuple[Any, Any]:
        assert self.cluster.calls, f"{api_key.name} was not sent"
        call = self.cluster.calls[0]
        assert call.api_key is api_key
        assert call.max_version is None or version <= call.max_version
        return self.cluster.take(version)

    def find(self, node: int = 1) -> Any:
        request, answer = self.next(ApiKey.FIND_COORDINATOR, 4)
        (key,) = request.coordinator_keys
        answer(FindCoordinatorResponse(coordinators=[
            Coordinator(key=key, node_id=node, host="h", port=1, error_code=0, error_message=None)
        ]))  # fmt: skip
        return request

    def initialized(self, epoch: int = 0, code: int = 0) -> Any:
        request, answer = self.next(ApiKey.INIT_PRODUCER_ID, 4)
        answer(InitProducerIdResponse(error_code=code, producer_id=9, producer_epoch=epoch))
        return request

    def added(self, code: int = 0) -> list[int]:
        request, answer = self.next(ApiKey.ADD_PARTITIONS_TO_TXN, 3)
        (topic,) = request.v3_and_below_topics
        answer(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=n, partition_error_code=code)
                for n in topic.partitions
            ])
        ]))  # fmt: skip
        return list(topic.partitions)

    def produced(self, code: int = 0, version: int = 11) -> tuple[int, int, bool]:
        """Return the epoch, sequence and transactional flag of the answered batch."""
        request, answer = self.next(ApiKey.PRODUCE, version)
        assert request.transactional_id == "id"
        ((partition,),) = (topic.partition_data for topic in request.topic_data)
        header = read_header(partition.records)
        result = PartitionProduceResponse(index=partition.index, error_code=code, base_offset=0)
        topic = TopicProduceResponse(name="t", topic_id=TOPIC_ID, partition_responses=[result])
        answer(ProduceResponse(responses=[topic]))
        return header.producer_epoch, header.base_sequence, header.is_transactional

    def ended(self, code: int = 0, version: int = 4, epoch: int = -1) -> bool:
        request, answer = self.next(ApiKey.END_TXN, version)
        answer(EndTxnResponse(
            error_code=code, producer_id=9 if epoch >= 0 else -1, producer_epoch=epoch
        ))  # fmt: skip
        return bool(request.committed)

    def offsets_added(self) -> str:
        request, answer = self.next(ApiKey.ADD_OFFSETS_TO_TXN, 4)
        answer(AddOffsetsToTxnResponse(error_code=0))
        return str(request.group_id)

    def offsets_committed(self, codes: dict[int, int], version: int = 4) -> list[tuple[int, int]]:
        request, answer = self.next(ApiKey.TXN_OFFSET_COMMIT, version)
        (topic,) = request.topics
        answer(TxnOffsetCommitResponse(topics=[
            TxnOffsetCommitResponseTopic(name=topic.name, partitions=[
                TxnOffsetCommitResponsePartition(
                    partition_index=each.partition_index, error_code=codes[each.partition_index]
                )
                for each in topic.partitions
            ])
        ]))  # fmt: skip
        return [(each.partition_index, each.committed_offset) for each in topic.partitions]
