"""A transactional producer with a scripted coordinator, for tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.client.connections.lookups import Coordinators
from barnabas.client.producer import producer_plans
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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.client.errors import ClientError
    from barnabas.client.group.membership import GroupGeneration
    from barnabas.client.session.plans import WaitingPlan
    from barnabas.client.transactions.state import PreparedTransaction


class Call:
    """A transaction call of the user that waits for its outcome."""

    def __init__(self, core: ProducerCore, plan: WaitingPlan[object]) -> None:
        self._plan = plan
        next(plan)
        assert core.unclaimed is not None
        self.started = core.unclaimed

    @property
    def is_done(self) -> bool:
        return self.started.is_done

    @property
    def error(self) -> ClientError | None:
        return self.started.error

    def claim(self) -> None:
        """Read the outcome."""
        assert self.is_done
        with pytest.raises(StopIteration):
            self._plan.send(True)


class Calls:
    """The producer's transaction methods; each returns before its outcome is known."""

    def __init__(self, core: ProducerCore) -> None:
        self.begin = core.transactions.begin
        self._core = core

    def _call(self, plan: Callable[..., WaitingPlan[object]], *args: Any, **keys: Any) -> Call:
        return Call(self._core, plan(self._core, *args, **keys))

    def initialize(self, *, keeps_prepared: bool = False) -> Call:
        return self._call(producer_plans.init_transactions, keep_prepared_txn=keeps_prepared)

    def send_offsets(self, offsets: Mapping[Any, Any], group: GroupGeneration | str) -> Call:
        return self._call(producer_plans.send_offsets_to_transaction, offsets, group)

    def commit(self) -> Call:
        return self._call(producer_plans.commit_transaction)

    def prepare(self) -> Call:
        return self._call(producer_plans.prepare_transaction)

    def complete(self, stored: PreparedTransaction) -> Call:
        return self._call(producer_plans.complete_transaction, stored)

    def abort(self) -> Call:
        return self._call(producer_plans.abort_transaction)

    def detach(self) -> Call:
        return self._call(producer_plans.detach_transaction)


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
        self.calls = Calls(self.core)
        self.manager = self.core.transactions

    def ready(self) -> Setup:
        outcome = self.calls.initialize()
        self.find()
        self.initialized(epoch=0)
        outcome.claim()
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
