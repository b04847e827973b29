"""The directories of a cluster of three that Barnabas and Apache Kafka 4.4 open in turn.

As a whole, after a clean stop of all and after kill -9 of all, and one node at a time; with static
voters, and with a dynamic quorum (kraft.version 1). All the while an idempotent producer goes on
with acks=all: each record that was acknowledged is there once, at its offset.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from jvm.cluster_turns import ClusterTurns, Writer
from jvm.directory_asking import asking
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
from jvm.test_directories import SETTINGS, verify
from waiting import eventually

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from barnabas.testing.node_process import NodeProcess

pytestmark = pytest.mark.conformance

NODES = 3
STREAM = "stream"
PARTITIONS = 3
TOPICS = {**FILLED, STREAM: PARTITIONS, OFFSETS_TOPIC: 3, "__cluster_metadata": 1}
CLUSTER_SETTINGS = {
    **SETTINGS,
    "offsets.topic.replication.factor": str(NODES),
    # Offsets are compacted soon, and metadata are soon in snapshots.
    "offsets.topic.segment.bytes": "1048576",
    "metadata.log.max.record.bytes.between.snapshots": "2000",
}
# Metadata of its commits fills segments.
WORDY = "wordy"
WORDS = "x" * 4000


class Story:
    """The content of the directories, its writer, and the next cluster."""

    def __init__(self, turns: ClusterTurns) -> None:
        self.turns = turns
        turns.start(turns.ours)
        self.contents = Contents(turns.bootstrap, NODES)
        self.contents.fill()
        with asking(turns.bootstrap) as ask:
            create_topics(ask, {STREAM: {"min.insync.replicas": "2"}}, NODES, PARTITIONS)
            for offset in range(100):
                commit(ask, WORDY, dict.fromkeys(range(3), (offset, WORDS)))
        self.writer = Writer(turns.bootstrap, STREAM, PARTITIONS)

    def hand_over(self, end: str, to: dict[int, NodeProcess]) -> None:
        """Stop all nodes, and check that the other kind serves the data and continues."""
        left = self._picture_at_rest()
        self.writer.await_more(200)
        getattr(self.turns, end)()
        if end == "kill":
            for node_id in to:
                self.contents.tear(self.turns.directories(node_id))
        self.turns.start(to)
        self._check(left)

    def roll(self, to: dict[int, NodeProcess]) -> None:
        """Replace one node at a time, each after the previous one has caught up."""
        left = self._picture_at_rest()
        for node_id, node in to.items():
            self.writer.await_more(200)
            self.turns.running[node_id].stop()
            self.turns.start({node_id: node})
            with asking(self.turns.bootstrap) as ask:
                self.contents.await_replicas(ask)
        self._check(left)

    def end(self) -> None:
        """Check that each acknowledged record exists once at its offset."""
        said = self.writer.close()
        assert len(said) > 1000
        with asking(self.turns.bootstrap) as ask:
            found = {
                (partition, record.offset): record.value
                for partition in range(PARTITIONS)
                for _, _, record in records(ask, STREAM, partition)
            }
        assert found == {(each.partition, each.offset): each.value for each in said}
        self.turns.stop()
        for node_id in self.turns.running:
            verify(self.turns.directories(node_id))

    def _picture_at_rest(self) -> dict[str, object]:
        for node_id in self.turns.running:
            directories = self.turns.directories(node_id)
            self.contents.await_quiet(directories)
            eventually(partial(has_compacted_offsets, directories), "offsets are not compacted")
        return self.contents.picture()

    def _check(self, left: dict[str, object]) -> None:
        self.writer.await_more(200)
        found = self.contents.picture()
        for what, was in left.items():
            assert found[what] == was, what
        self.contents.check_producer()
        self.contents.write()


def has_compacted_offsets(directories: Sequence[Path]) -> bool:
    """Whether a partition of offsets with several segments is cleaned up to the last."""
    return any(
        len(list(path.glob("*.log"))) > 1
        and is_cleaned(directory, OFFSETS_TOPIC, int(path.name.rpartition("-")[2]))
        for directory in directories
        for path in directory.glob(f"{OFFSETS_TOPIC}-*")
    )


def check_files(dump: Dump, directories: Sequence[Path]) -> None:
    """Kafka's tool reads all that a node has, compacted offsets and snapshots of metadata too."""
    partitions = [path for directory in directories for path in sorted(directory.glob("*-[0-9]"))]
    assert len(partitions) == sum(TOPICS.values())
    dump.check_logs(partitions)
    assert "producerId: 424242 producerEpoch: 3" in dump.producers(partitions)
    offsets = [path for path in partitions if path.name.startswith(OFFSETS_TOPIC)]
    logs = [log for path in offsets for log in path.glob("*.log")]
    text = dump(logs, "--offsets-decoder")
    for group in (GROUP, EXPLICIT, WORDY):
        assert f'"group":"{group}","topic":"{PLAIN}","partition":0' in text
    # Of a hundred commits the first are compacted away.
    assert 0 < text.count(f'"group":"{WORDY}","topic":"{PLAIN}","partition":0') < 100
    log, snapshot = dump.metadata(directories[0])
    assert '"type":"PARTITION_CHANGE_RECORD"' in log
    for word in (f'"name":"{STREAM}"', '"type":"CLIENT_QUOTA_RECORD"', '"type":"CONFIG_RECORD"'):
        assert word in snapshot
    # Of a static quorum no voters are in the log.
    assert "KRaftVoters" in snapshot or "KRaftVersion" not in snapshot


@pytest.fixture
def story(
    request: pytest.FixtureRequest, kafka_jars: Callable[[str], str], tmp_path: Path
) -> Iterator[Story]:
    dynamic = request.param == "dynamic"
    turns = ClusterTurns(NODES, tmp_path, CLUSTER_SETTINGS, dynamic=dynamic)
    try:
        yield Story(turns)
    finally:
        turns.close()


@pytest.mark.nightly
@pytest.mark.parametrize("story", ["static"], indirect=True)
def test_a_whole_cluster_is_replaced_and_replaced_back(
    story: Story, kafka_tools: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    for node in story.turns.kafkas.values():
        # Of three that are to stop at once Kafka's last else waits five minutes for a controller.
        node.settings["controlled.shutdown.enable"] = "false"
    for end in ("stop", "kill"):
        story.hand_over(end, story.turns.kafkas)
        story.hand_over(end, story.turns.ours)
    story.end()
    dump = Dump(kafka_tools, has_kafka_written=True)
    for node_id in story.turns.running:
        check_files(dump, story.turns.directories(node_id))


@pytest.mark.parametrize("story", ["dynamic"], indirect=True)
def test_a_cluster_is_replaced_one_node_at_a_time(story: Story) -> None:
    story.roll(story.turns.kafkas)
    story.roll(story.turns.ours)
    story.hand_over("kill", story.turns.kafkas)
    story.hand_over("kill", story.turns.ours)
    story.end()
