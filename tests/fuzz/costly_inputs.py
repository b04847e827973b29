"""Small requests that could be costly: regular expressions, pushed metrics and old message sets.

They are valid apart from what they carry, so that the broker processes what they carry.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from barnabas.protocol.codec import decode_response
from barnabas.protocol.messages.connection import (
    GetTelemetrySubscriptionsRequest,
    PushTelemetryRequest,
)
from barnabas.protocol.messages.groups import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.transactions import ListTransactionsRequest
from barnabas.protocol.schema import ZERO_UUID
from barnabas.record.legacy import write_message_set
from barnabas.record.record import Record
from conformance.raw_client import RawClient
from fuzz.conversions import CONVERTED, PARTITIONS
from fuzz.patterns import random_pattern
from fuzz.pushed_metrics import random_push

if TYPE_CHECKING:
    from collections.abc import Callable

_REBALANCE_MS = 60_000
_TIMEOUT_MS = 30_000
_GROUPS, _MEMBERS = 4, 5
# Requests of one connection.
_AT_ONCE = 10


class CostlyInputs:
    """Sends random requests, and reads their responses."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.sent = 0
        self._kinds: list[Callable[[RawClient], None]] = [
            self._subscribe, self._list_transactions, self._push, self._produce,
        ]  # fmt: skip

    def send(self, bootstrap: str) -> None:
        """Send some requests on one connection.

        Raises:
            OSError: the broker does not accept the connection or does not respond.
        """
        client = RawClient(bootstrap)
        try:
            for _ in range(_AT_ONCE):
                self._rng.choice(self._kinds)(client)
                self.sent += 1
        finally:
            client.close()

    def _subscribe(self, client: RawClient) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=f"fuzz-regexes-{self._rng.randrange(_GROUPS)}",
            member_id=f"member-{self._rng.randrange(_MEMBERS)}",
            member_epoch=0,
            rebalance_timeout_ms=_REBALANCE_MS,
            subscribed_topic_regex=random_pattern(self._rng),
            topic_partitions=[],
        )
        _ask(client, request, 1)

    def _list_transactions(self, client: RawClient) -> None:
        request = ListTransactionsRequest(
            state_filters=[],
            producer_id_filters=[],
            transactional_id_pattern=random_pattern(self._rng),
        )
        _ask(client, request, 2)

    def _push(self, client: RawClient) -> None:
        found = _ask(client, GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_UUID), 0)
        compression, metrics = random_push(self._rng)
        request = PushTelemetryRequest(
            client_instance_id=found.client_instance_id,
            subscription_id=found.subscription_id,
            terminating=False,
            compression_type=compression,
            metrics=metrics,
        )
        _ask(client, request, 0)

    def _produce(self, client: RawClient) -> None:
        rng = self._rng
        version = rng.randrange(3)
        size = rng.choice([10, 100_000, 2 << 20])
        records = [
            Record(offset, 5, 0, b"k", bytes(size // 10) + rng.randbytes(size // 100))
            for offset in range(rng.choice([1, 10]))
        ]
        message_set = write_message_set(int(version > 1), records, rng.choice([0, 1, 2, 3]))
        partitions = [
            PartitionProduceData(index=each, records=bytes(message_set))
            for each in range(PARTITIONS)
        ]
        topic = TopicProduceData(name=CONVERTED, partition_data=partitions)
        request = ProduceRequest(acks=1, timeout_ms=_TIMEOUT_MS, topic_data=[topic])
        _ask(client, request, version)


def _ask(client: RawClient, request: Any, version: int) -> Any:
    client.send(request, version)
    frame = client.receive_frame()
    if frame is None:
        raise ConnectionResetError(f"no response to {type(request).__name__}")
    return decode_response(type(request), version, frame)[1]
