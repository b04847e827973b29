"""A process whose transaction failed begins no other one with the same producer of librdkafka."""

from __future__ import annotations

import confluent_kafka
import pytest

from chaos.transactional.clients import AbortableError, FatalError, LibrdkafkaProducer


class FailingProducer:
    """A producer of librdkafka whose flush times out."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def begin_transaction(self) -> None:
        self.calls.append("begin")

    def flush(self, _timeout: float) -> None:
        code = confluent_kafka.KafkaError._TIMED_OUT
        told = confluent_kafka.KafkaError(code, "timed out", txn_requires_abort=True)
        raise confluent_kafka.KafkaException(told)

    def abort_transaction(self, _timeout: float) -> None:
        self.calls.append("abort")


def test_no_transaction_begins_after_a_failed_one() -> None:
    producer = LibrdkafkaProducer("127.0.0.1:1", "id", lambda _error: None)
    producer._producer = failing = FailingProducer()
    producer.begin()
    producer.abort()
    producer.begin()
    with pytest.raises(AbortableError):
        producer.flush()
    producer.abort()
    with pytest.raises(FatalError):
        producer.begin()
    assert failing.calls == ["begin", "abort", "begin", "abort"]
