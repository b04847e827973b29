"""Clients of share groups on simulated hosts: a writer, and a consumer that records its events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.config import ClientConfig
from barnabas.client.connections.cluster import Cluster
from barnabas.client.connections.lookups import Coordinators
from barnabas.client.errors import ClientError
from barnabas.client.producer.producer_core import ProducerCore
from barnabas.client.producer.producer_plans import Until
from barnabas.client.producer.user_objects import take_parts
from barnabas.client.share.acknowledgements import AcknowledgeType
from barnabas.client.share.share_consumer_base import share_consumer_config
from barnabas.client.share.share_consumer_core import ShareConsumerCore
from barnabas.client.topic_partition import TopicPartition
from chaos.groups.share_notes import ShareNotes
from simulation.transactions.actors import CALL_MS, DEFAULT_KEYS, ActingProducer, Session, Work

if TYPE_CHECKING:
    from barnabas.client.share.acquired_records import ShareRecord
    from barnabas.runtime.loop import Runtime

FETCH_WAIT_MS = 200


class ActingWriter(ActingProducer):
    """An idempotent producer on a simulated host."""

    def __init__(self, runtime: Runtime, bootstrap: str) -> None:
        self._clock = runtime.clock
        parts, keys = take_parts({})
        config = ClientConfig.parse(
            {
                **DEFAULT_KEYS,
                "bootstrap.servers": bootstrap,
                "delivery.timeout.ms": int(CALL_MS),
                "linger.ms": 5,
                **keys,
            }
        )
        self.core = ProducerCore(Session(runtime, config), config, parts)
        self.errors: list[ClientError] = []


class ActingShareConsumer:
    """A share consumer on a simulated host, which records its events.

    Args:
        runtime: the runtime of the host.
        group: the group.
        notes: receives deliveries and acknowledgements.
        bootstrap: bootstrap servers of the cluster.
    """

    def __init__(self, runtime: Runtime, group: str, notes: ShareNotes, bootstrap: str) -> None:
        self._clock = runtime.clock
        self.notes = notes
        config, deserializing = share_consumer_config(
            bootstrap,
            {
                **DEFAULT_KEYS,
                "group.id": group,
                "share.acknowledgement.mode": "explicit",
                "fetch.max.wait.ms": FETCH_WAIT_MS,
                "max.poll.records": 50,
            },
        )
        cluster = Cluster(runtime, config)
        self.core = ShareConsumerCore(cluster, Coordinators(cluster), deserializing)
        self.core.results.callback = notes.on_results
        notes.watch(self.core.fetcher)
        self._limit = config.max_poll_records

    def pump(self) -> None:
        """Record the results of acknowledgements."""
        self.core.results.run()

    def poll(self, timeout_ms: float) -> Work[list[ShareRecord]]:
        """Return the next records; empty after the timeout or an error."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        try:
            self.core.begin_poll()
            while True:
                self.core.round()
                records = self.core.take(self._limit)
                if records:
                    self.notes.note(records)
                    return list(records)
                if self._clock.monotonic_ms() >= deadline_ms:
                    return []
                yield Until(lambda: self.core.is_awake, 20)
        except ClientError as error:
            self.notes.errors.append(error)
            return []
        finally:
            self.core.end_poll()

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        """Acknowledge a record with the next commit."""
        tp = TopicPartition(record.topic, record.partition)
        self.core.acknowledge(tp, record.offset, kind, is_by_offset=False)
        self.notes.acknowledge(record, kind)

    def commit(self, timeout_ms: float) -> Work[None]:
        """Send acknowledgements, and wait for their results."""
        commit = self.core.commit()
        yield Until(lambda: commit.is_done, timeout_ms)

    def leave(self, timeout_ms: float) -> Work[None]:
        """Leave the group, which releases unacknowledged records."""
        self.notes.end()
        left: list[bool] = []
        self.core.leave(lambda: left.append(True))
        yield Until(lambda: bool(left), timeout_ms)
        if not left:
            self.core.abandon()
        self.core.stop()
