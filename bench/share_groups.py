"""`python -m bench.share_groups`: share fetches and acknowledgements, compared with Apache Kafka.

One raw client is the member of a share group with one partition. It fetches records of 100 B, and
acknowledges all of them with the next ShareFetch. The other case acknowledges each fetch by a
separate ShareAcknowledge. The brokers take turns in each case. The first round is a warm-up. The
table has the best figure of the other rounds: processor time of the broker per record, and the time
of a request (p50, p99). `--json FILE` stores the figures.
"""

from __future__ import annotations

import os
import statistics
import time
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import barnabas
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.protocol.codec import decode_response, encode_request
from barnabas.protocol.messages.metadata import (
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from barnabas.protocol.messages.share_acknowledge import (
    AcknowledgementBatch as OwnAcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from barnabas.protocol.messages.share_consumers import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
)
from bench.cases import compare

if TYPE_CHECKING:
    from bench.brokers import Broker

SETTINGS = {
    "group.share.assignment.interval.ms": "0",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}
VALUE = os.urandom(50).hex().encode()
ACCEPT = 1
FETCH_VERSION, HEARTBEAT_VERSION, METADATA_VERSION = 2, 1, 12
# Time limit of the join and of the first records.
START_S_MAX = 300.0


class ShareClient:
    """A member over a plain socket: one request in flight."""

    def __init__(self, broker: Broker, group: str, topic: str) -> None:
        self._socket = broker.connect()
        self._file = self._socket.makefile("rb")
        self._group = group
        self._member = str(uuid.uuid4())
        self._correlation_id = 0
        # Epoch of the next request of the share session.
        self._epoch = 0
        self._topic = topic
        self._topic_id = b""

    def exchange(self, request: Any, version: int) -> Any:
        """Send a request and wait for its response."""
        self._correlation_id += 1
        chunks = encode_request(self._correlation_id, "bench", request, version)
        self._socket.sendall(b"".join(bytes(each) for each in chunks))
        frame = self._file.read(int.from_bytes(self._file.read(4)))
        return decode_response(type(request), version, frame)[1]

    def join(self) -> None:
        """Join the group, and wait for the partition."""
        metadata = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=bytes(16), name=self._topic)]
        )
        self._topic_id = self.exchange(metadata, METADATA_VERSION).topics[0].topic_id
        # This creates the topic of the coordinators.
        while self.exchange(FindCoordinatorRequest(key=self._group), 0).error_code:
            time.sleep(0.1)
        epoch, deadline = 0, time.monotonic() + START_S_MAX
        while time.monotonic() < deadline:
            names = None if epoch else [self._topic]
            request = ShareGroupHeartbeatRequest(
                group_id=self._group,
                member_id=self._member,
                member_epoch=epoch,
                subscribed_topic_names=names,
            )
            response = self.exchange(request, HEARTBEAT_VERSION)
            if not response.error_code:
                epoch = response.member_epoch
                if response.assignment is not None and response.assignment.topic_partitions:
                    return
            time.sleep(0.1)
        raise SystemExit(f"the group did not assign the partition in {START_S_MAX:.0f} s")

    def fetch(self, records: int, accepted: tuple[int, int] | None) -> tuple[int, int] | None:
        """Acquire records, and accept those of the last fetch; return first and last offset."""
        batches = []
        if accepted is not None:
            first, last = accepted
            batches = [
                AcknowledgementBatch(
                    first_offset=first, last_offset=last, acknowledge_types=[ACCEPT]
                )
            ]
        partition = FetchPartition(partition_index=0, acknowledgement_batches=batches)
        is_listed = bool(batches) or not self._epoch
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._member,
            share_session_epoch=self._epoch,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=records,
            batch_size=records,
            topics=[FetchTopic(topic_id=self._topic_id, partitions=[partition])]
            if is_listed
            else [],
            forgotten_topics_data=[],
        )
        response = self.exchange(request, FETCH_VERSION)
        self._epoch += 1
        if response.error_code:
            raise SystemExit(f"ShareFetch: {response.error_code} {response.error_message}")
        for topic in response.responses:
            for data in topic.partitions:
                if data.acknowledge_error_code:
                    raise SystemExit(f"acknowledgements: {data.acknowledge_error_code}")
                if data.acquired_records:
                    return data.acquired_records[0].first_offset, data.acquired_records[
                        -1
                    ].last_offset
        return None

    def acknowledge(self, first: int, last: int) -> None:
        """Accept records by a ShareAcknowledge request."""
        batch = OwnAcknowledgementBatch(
            first_offset=first, last_offset=last, acknowledge_types=[ACCEPT]
        )
        partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
        request = ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member,
            share_session_epoch=self._epoch,
            topics=[AcknowledgeTopic(topic_id=self._topic_id, partitions=[partition])],
        )
        response = self.exchange(request, FETCH_VERSION)
        self._epoch += 1
        error = response.error_code or response.responses[0].partitions[0].error_code
        if error:
            raise SystemExit(f"ShareAcknowledge: {error}")

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        self._socket.close()


class Case(NamedTuple):
    """How records are fetched and acknowledged."""

    # Number of records in a batch, which are fetched together.
    batch: int
    # Whether acknowledgements are sent by ShareAcknowledge.
    is_separate: bool

    @property
    def name(self) -> str:
        """The first part of the names of its rows."""
        kind = "ShareAcknowledge" if self.is_separate else "acknowledged by the next fetch"
        return f"{self.batch} records a fetch, {kind}"

    def run(self, broker: Broker, requests: int) -> dict[str, float]:
        """Send this number of fetches; return the figures by row."""
        name = f"shares-{uuid.uuid4().hex[:8]}"
        fill(broker, name, self.batch, requests + 1)
        client = ShareClient(broker, name, name)
        client.join()
        accepted: tuple[int, int] | None = self._first(client)
        count = 0
        fetches: list[float] = []
        acknowledgements: list[float] = []
        cpu, began = broker.cpu_seconds(), time.perf_counter()
        while count < requests * self.batch:
            if self.is_separate and accepted is not None:
                started = time.perf_counter()
                client.acknowledge(*accepted)
                acknowledgements.append(1_000 * (time.perf_counter() - started))
            started = time.perf_counter()
            accepted = client.fetch(self.batch, None if self.is_separate else accepted)
            fetches.append(1_000 * (time.perf_counter() - started))
            if accepted is not None:
                count += accepted[1] - accepted[0] + 1
            elif len(fetches) > 2 * requests:
                raise SystemExit(f"{broker.name}: {count} records of {requests * self.batch}")
        seconds, cpu = time.perf_counter() - began, broker.cpu_seconds() - cpu
        client.close()
        return self._figures(count / seconds, 1e6 * cpu / count, fetches, acknowledgements)

    def _first(self, client: ShareClient) -> tuple[int, int]:
        """Return the offsets of the first fetch, once the state of the partition is initialized."""
        deadline = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline:
            found = client.fetch(self.batch, None)
            if found is not None:
                return found
        raise SystemExit(f"no records arrived in {START_S_MAX:.0f} s")

    def _figures(
        self, speed: float, cpu_us: float, fetches: list[float], acknowledgements: list[float]
    ) -> dict[str, float]:
        rows = {
            f"{self.name}: records/s": speed,
            f"{self.name}: CPU of the broker per record, µs": cpu_us,
        }
        for what, times in (("ShareFetch", fetches), ("ShareAcknowledge", acknowledgements)):
            if times:
                times.sort()
                rows[f"{self.name}: {what} p50, ms"] = statistics.median(times)
                rows[f"{self.name}: {what} p99, ms"] = times[int(len(times) * 0.99)]
        return rows


def fill(broker: Broker, name: str, batch: int, batches: int) -> None:
    """Create a topic with batches of records, and let the group of its name read from its start."""
    with barnabas.Client(broker.address) as client:
        client.create_topic(name, 1, 1)
        resource = ConfigResource(ResourceType.GROUP, name)
        client.admin.alter_configs(resource, {"share.auto.offset.reset": "earliest"})
    with barnabas.Producer(broker.address, linger_ms=1_000) as producer:
        for _ in range(batches):
            for _ in range(batch):
                producer.send(name, VALUE, partition=0)
            producer.flush()


CASES = (Case(1, False), Case(100, False), Case(1, True), Case(100, True))


def main() -> None:
    """Run all cases on all brokers and print the table."""
    compare(__doc__, CASES, (1_000, "fetches of a round"), SETTINGS)


if __name__ == "__main__":
    main()
