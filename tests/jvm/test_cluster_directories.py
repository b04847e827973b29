"""The directories of a cluster of three nodes, which Barnabas and Apache Kafka 4.4 open in turn.

The whole cluster is replaced after a clean stop or kill -9, or one node at a time, with static
voters and with a dynamic quorum (kraft.version 1). Meanwhile an idempotent producer writes with
acks=all. Each acknowledged record exists once, at its offset.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from jvm.alternating_cluster import AlternatingCluster, Writer
from jvm.directory_contents import (
    EXPLICIT,
    GROUP,
    OFFSETS_TOPIC,
    PARTITIONS as FILLED,
    PLAIN,
    Contents,
    commit,
    create_topics,
    is_cleaned,
    records,
)
from jvm.directory_dump import Dump
from jvm.directory_requests import request_router
from jvm.directory_settings import SETTINGS, verify
from waiting import eventually

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from barnabas.testing.cluster_process import NodeProcess

pytestmark = pytest.mark.conformance

NODES = 3
STREAM = "stream"
PARTITIONS = 3
TOPICS = {**FILLED, STREAM: PARTITIONS, OFFSETS_TOPIC: 3, "__cluster_metadata": 1}
CLUSTER_SETTINGS = {
    **SETTINGS,
    "offsets.topic.replication.factor": str(NODES),
    # Offsets are compacted early, and metadata snapshots are written early.
    "offsets.topic.segment.bytes": "1048576",
    "metadata.log.max.record.bytes.between.snapshots": "2000",
}
# A group with long metadata in its commits, which fills segments.
WORDY = "wordy"
WORDS = "x" * 4000


class Story:
    """A cluster with its contents and a writer, whose nodes are replaced."""

    def __init__(self, cluster: AlternatingCluster) -> None:
        self.cluster = cluster
        cluster.start(cluster.ours)
        self.contents = Contents(cluster.bootstrap, NODES)
        self.contents.fill()
        with request_router(cluster.bootstrap) as send:
            create_topics(send, {STREAM: {"min.insync.replicas": "2"}}, NODES, PARTITIONS)
            for offset in range(100):
                commit(send, WORDY, dict.fromkeys(range(3), (offset, WORDS)))
        self.writer = Writer(cluster.bootstrap, STREAM, PARTITIONS)

    def switch(self, end: str, to: dict[int, NodeProcess]) -> None:
        """End all nodes, start those of the other kind, and check that they serve the data."""
        before = self._describe_at_rest()
        self.writer.await_more(200)
        getattr(self.cluster, end)()
        if end == "kill":
            for node_id in to:
                self.contents.append_torn_batch(self.cluster.directories(node_id))
        self.cluster.start(to)
        self._check(before)

    def roll(self, to: dict[int, NodeProcess]) -> None:
        """Replace one node at a time, each after the previous one has caught up."""
        before = self._describe_at_rest()
        for node_id, node in to.items():
            self.writer.await_more(200)
            self.cluster.stop(node_id)
            self.cluster.start({node_id: node})
            with request_router(self.cluster.bootstrap) as send:
                self.contents.await_replicas(send)
        self._check(before)

    def end(self) -> None:
        """Check that each acknowledged record exists once at its offset."""
        acknowledged = self.writer.close()
        assert len(acknowledged) > 1000
        with request_router(self.cluster.bootstrap) as send:
            found = {
                (partition, record.offset): record.value
                for partition in range(PARTITIONS)
                for _, _, record in records(send, STREAM, partition)
            }
        assert found == {(each.partition, each.offset): each.value for each in acknowledged}
        self.cluster.stop()
        for node_id in self.cluster.running:
            verify(self.cluster.directories(node_id))

    def _describe_at_rest(self) -> dict[str, object]:
        for node_id in self.cluster.running:
            directories = self.cluster.directories(node_id)
            self.contents.await_periodic_work(directories)
            eventually(partial(has_compacted_offsets, directories), "offsets are not compacted")
        return self.contents.describe_contents()

    def _check(self, before: dict[str, object]) -> None:
        self.writer.await_more(200)
        found = self.contents.describe_contents()
        for what, was in before.items():
            assert found[what] == was, what
        self.contents.check_producer()
        self.contents.write()


def has_compacted_offsets(directories: Sequence[Path]) -> bool:
    """Return whether an offsets partition with several segments is cleaned up to the last."""
    return any(
        len(list(path.glob("*.log"))) > 1
        and is_cleaned(directory, OFFSETS_TOPIC, int(path.name.rpartition("-")[2]))
        for directory in directories
        for path in directory.glob(f"{OFFSETS_TOPIC}-*")
    )


def check_files(dump: Dump, directories: Sequence[Path]) -> None:
    """Check that Kafka's tool reads all files of a node, including metadata snapshots."""
    partitions = [path for directory in directories for path in sorted(directory.glob("*-[0-9]"))]
    assert len(partitions) == sum(TOPICS.values())
    dump.check_logs(partitions)
    assert "producerId: 424242 producerEpoch: 3" in dump.producers(partitions)
    offsets = [path for path in partitions if path.name.startswith(OFFSETS_TOPIC)]
    logs = [log for path in offsets for log in path.glob("*.log")]
    text = dump(logs, "--offsets-decoder")
    for group in (GROUP, EXPLICIT, WORDY):
        assert f'"group":"{group}","topic":"{PLAIN}","partition":0' in text
    # Compaction has removed the first of a hundred commits.
    assert 0 < text.count(f'"group":"{WORDY}","topic":"{PLAIN}","partition":0') < 100
    log, snapshot = dump.metadata(directories[0])
    assert '"type":"PARTITION_CHANGE_RECORD"' in log
    for word in (f'"name":"{STREAM}"', '"type":"CLIENT_QUOTA_RECORD"', '"type":"CONFIG_RECORD"'):
        assert word in snapshot
    # The log of a static quorum has no voters.
    assert "KRaftVoters" in snapshot or "KRaftVersion" not in snapshot


@pytest.fixture
def story(
    request: pytest.FixtureRequest, kafka_jars: Callable[[str], str], tmp_path: Path
) -> Iterator[Story]:
    dynamic = request.param == "dynamic"
    cluster = AlternatingCluster(NODES, tmp_path, CLUSTER_SETTINGS, dynamic=dynamic)
    try:
        yield Story(cluster)
    finally:
        cluster.close()


@pytest.mark.nightly
@pytest.mark.parametrize("story", ["static"], indirect=True)
def test_a_whole_cluster_is_replaced_and_replaced_back(
    story: Story, kafka_tools: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    for node in story.cluster.kafkas.values():
        # Otherwise the last of three stopping nodes of Kafka waits five minutes for a controller.
        node.settings["controlled.shutdown.enable"] = "false"
    for end in ("stop", "kill"):
        story.switch(end, story.cluster.kafkas)
        story.switch(end, story.cluster.ours)
    story.end()
    dump = Dump(kafka_tools, has_kafka_written=True)
    for node_id in story.cluster.running:
        check_files(dump, story.cluster.directories(node_id))


@pytest.mark.nightly
@pytest.mark.parametrize("story", ["dynamic"], indirect=True)
def test_a_cluster_is_replaced_one_node_at_a_time(story: Story) -> None:
    story.roll(story.cluster.kafkas)
    story.roll(story.cluster.ours)
    story.switch("kill", story.cluster.kafkas)
    story.switch("kill", story.cluster.ours)
    story.end()
