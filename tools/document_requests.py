"""Writes the lists of files in docs/requests.md from traces of real requests.

Run `python -m tools.document_requests` after a change of the code; a test checks the page.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

from barnabas.protocol.codec import encode_bytes
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    TopicPartitionsRequest,
)
from barnabas.protocol.messages.metadata import FindCoordinatorRequest
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.records.classic_groups import ConsumerProtocolSubscription
from barnabas.record.builder import BatchBuilder
from tools.request_trace import SOURCES, Client, Step, usual_steps, with_broker

FILE = Path(__file__).parents[1] / "docs" / "requests.md"
COMMAND = "python -m tools.document_requests"
END = "<!-- end of the trace -->"
HEAD = "| | file | first function | content of the file |\n|---|---|---|---|\n"
TOPIC = "map"
GROUP = "consumers"
# A member of a classic group subscribes to the topic, with version 0 of the embedded protocol.
SUBSCRIPTION = b"\x00\x00" + encode_bytes(ConsumerProtocolSubscription(topics=[TOPIC]), 0)
# Requests that are sent until the group coordinator has loaded.
TRIES = 1000
# Goals for the number of files that a request passes until its response is sent.
GOALS = {"Produce": 22, "Heartbeat": 18, "JoinGroup": 18}
_END_OF_SENTENCE = re.compile(r"(?<=\.)\s|\n\s*\n")


class Requests:
    """Sends each kind of request, as often as it is called."""

    def __init__(self, client: Client) -> None:
        self._client = client
        # Number of the last topic or group with a name of its own.
        self._number = 0
        # Epoch of the member of the consumer group; 0 before it has joined.
        self._epoch = 0

    async def create_topic(self) -> None:
        """Create another topic."""
        self._number += 1
        await self._create(f"{TOPIC}-{self._number}")

    async def produce(self) -> None:
        """Append a record."""
        batch = BatchBuilder()
        batch.append(0, None, b"value")
        data = PartitionProduceData(index=0, records=bytes(batch.build()))
        topics = [TopicProduceData(name=TOPIC, partition_data=[data])]
        request = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=topics)
        response = await self._client.send(request, 9)
        check(response.responses[0].partition_responses[0].error_code)

    async def fetch(self) -> None:
        """Read the first batch."""
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
        topics = [FetchTopic(topic=TOPIC, partitions=[partition])]
        request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics)
        response = await self._client.send(request, 12)
        check(response.responses[0].partitions[0].error_code)
        assert response.responses[0].partitions[0].records, "no records were read"

    async def join_group(self) -> None:
        """Join another classic group, with the member id of the first response."""
        self._number += 1
        name = f"classic-{self._number}"
        found = await self._join(name, "")
        check((await self._join(name, found.member_id)).error_code)

    async def heartbeat(self) -> None:
        """Send a heartbeat of a member that owns its partitions and has no news."""
        response = await self._send_heartbeat()
        check(response.error_code)
        assert response.member_epoch == self._epoch, response
        assert response.assignment is None, response

    async def prepare(self) -> None:
        """Create the topic, and add a member to a consumer group until it owns the partition."""
        await self._create(TOPIC)
        await self._client.send(FindCoordinatorRequest(key=GROUP), 0)
        owned: list[TopicPartitionsRequest] | None = []
        has_joined = False
        for _ in range(TRIES):
            response = await self._send_heartbeat(owned)
            if response.error_code:
                continue
            if has_joined and self._epoch == response.member_epoch and not response.assignment:
                return
            self._epoch = response.member_epoch
            # A member reports its partitions only after they have changed.
            owned = None
            if response.assignment is not None:
                has_joined = True
                owned = [
                    TopicPartitionsRequest(topic_id=topic.topic_id, partitions=topic.partitions)
                    for topic in response.assignment.topic_partitions
                ]
        raise TimeoutError("the member got no partition")

    async def _create(self, name: str) -> None:
        topic = CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        response = await self._client.send(CreateTopicsRequest(topics=[topic]), 7)
        check(response.topics[0].error_code)

    async def _join(self, name: str, member_id: str) -> Any:
        protocols = [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)]
        request = JoinGroupRequest(
            group_id=name,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=protocols,
        )
        return await self._client.send(request, 9)

    async def _send_heartbeat(self, owned: list[TopicPartitionsRequest] | None = None) -> Any:
        is_new = self._epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id="member",
            member_epoch=self._epoch,
            rebalance_timeout_ms=30_000 if is_new else -1,
            subscribed_topic_names=[TOPIC] if is_new else None,
            topic_partitions=owned,
        )
        return await self._client.send(request, 1)


def check(error_code: int) -> None:
    """Fail if the broker refused a request."""
    assert error_code == 0, f"the broker responded with error {error_code}"


def trace_all() -> dict[str, list[Step]]:
    """Return the steps of each request."""
    steps: dict[str, list[Step]] = {}

    async def main(client: Client) -> None:
        requests = Requests(client)
        await requests.prepare()
        for name, send in {
            "Produce": requests.produce,
            "Fetch": requests.fetch,
            "JoinGroup": requests.join_group,
            "Heartbeat": requests.heartbeat,
            "CreateTopics": requests.create_topic,
        }.items():
            steps[name] = await usual_steps(client, send)

    with_broker(main)
    return steps


def summary(steps: dict[str, list[Step]]) -> str:
    """Return the table of the numbers of files."""
    rows = [
        f"| [{name}](#{name.lower()}) | {files_before(found)} | {GOALS.get(name, '')} |\n"
        for name, found in steps.items()
    ]
    return f"| request | files until the response | goal |\n|---|---|---|\n{''.join(rows)}"


def files_before(steps: list[Step]) -> int:
    """Return the number of files until the response is sent."""
    return sum(not step.is_after for step in steps)


def table(steps: list[Step]) -> str:
    """Return the table of a request."""
    rows = [row(number, step) for number, step in enumerate(steps, start=1)]
    if files_before(steps) < len(steps):
        rows.insert(files_before(steps), "| | *the response is sent* | | |\n")
    return HEAD + "".join(rows)


def row(number: int, step: Step) -> str:
    """Return the line of a file."""
    return f"| {number} | `{step.file}` | `{step.function}` | {content(step.file)} |\n"


def content(file: str) -> str:
    """Return the first sentence of a module's docstring."""
    docstring = ast.get_docstring(ast.parse((SOURCES / file).read_text())) or ""
    sentence = " ".join(_END_OF_SENTENCE.split(docstring, maxsplit=1)[0].split())
    return sentence.replace("|", "\\|")


def document() -> str:
    """Return the page with new tables between their marks."""
    steps = trace_all()
    tables = {"Summary": summary(steps)} | {name: table(each) for name, each in steps.items()}
    page = FILE.read_text()
    for name, text in tables.items():
        mark = f"<!-- written by `{COMMAND}`: {name} -->\n"
        before, found, rest = page.partition(mark)
        _, end, after = rest.partition(END)
        assert found, mark
        assert end, END
        page = f"{before}{mark}\n{text}\n{END}{after}"
    return page


if __name__ == "__main__":
    if "--print" in sys.argv:
        sys.stdout.write(document())
    else:
        FILE.write_text(document())
