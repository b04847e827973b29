"""Requests of simulated replicas to a single controller of each kind get equal responses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.messages import (
    begin_quorum_epoch as begins,
    end_quorum_epoch as ends,
    fetch as fetches,
    quorum,
)
from jvm.joint_quorum import CLUSTER_ID, KAFKA_ID, METADATA, JointQuorum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.protocol.schema import Message

pytestmark = pytest.mark.conformance

OURS_ID = 1
TOPIC_ID = bytes(15) + b"\x01"
# Id and directory of a replica that does not exist.
UNKNOWN_ID, UNKNOWN_DIRECTORY = 9, bytes([7] * 16)
OTHER_CLUSTER = "another"
# Parts of responses that differ between the sides.
ERROR_MESSAGE = re.compile(r"""error_message=(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
VARYING = re.compile(r"(high_watermark|end_offset)=(\d+)|<memory at \w+>")


class Receiver:
    """The identity of the node that receives a request."""

    def __init__(self, joint: JointQuorum, node_id: int) -> None:
        self.id = node_id
        self.directory_id = joint.directory_id(node_id)


def vote(receiver: Receiver, epoch: int, version: int = 2, **values: Any) -> tuple[Message, int]:
    cluster_id = values.pop("cluster_id", CLUSTER_ID)
    topic = values.pop("topic", METADATA)
    voter_id = values.pop("voter_id", receiver.id)
    given = {
        "replica_id": UNKNOWN_ID,
        "last_offset_epoch": 0,
        "last_offset": 0,
        "pre_vote": False,
        **values,
    }
    partition = quorum.PartitionDataRequest(
        partition_index=0,
        replica_epoch=epoch,
        replica_directory_id=UNKNOWN_DIRECTORY,
        voter_directory_id=receiver.directory_id,
        **given,
    )
    topics = [quorum.TopicDataRequest(topic_name=topic, partitions=[partition])]
    return quorum.VoteRequest(cluster_id=cluster_id, voter_id=voter_id, topics=topics), version


def fetch(epoch: int, offset: int, last_epoch: int, **values: Any) -> tuple[Message, int]:
    partition = fetches.FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=0,
        replica_directory_id=UNKNOWN_DIRECTORY,
    )
    topic = fetches.FetchTopic(topic_id=values.pop("topic_id", TOPIC_ID), partitions=[partition])
    request = fetches.FetchRequest(
        cluster_id=values.pop("cluster_id", CLUSTER_ID),
        replica_state=fetches.ReplicaState(replica_id=UNKNOWN_ID),
        max_wait_ms=values.pop("max_wait_ms", 0),
        min_bytes=0,
        topics=[topic],
    )
    return request, 18


def begin(leader: int, epoch: int, voter_id: int = -1, **values: Any) -> tuple[Message, int]:
    partition = begins.PartitionDataRequest(partition_index=0, leader_id=leader, leader_epoch=epoch)
    topic = begins.TopicDataRequest(
        topic_name=values.get("topic", METADATA), partitions=[partition]
    )
    cluster_id = values.get("cluster_id", CLUSTER_ID)
    request = begins.BeginQuorumEpochRequest(
        cluster_id=cluster_id, voter_id=voter_id, topics=[topic]
    )
    return request, 1


def end(leader: int, epoch: int, cluster_id: str = CLUSTER_ID) -> tuple[Message, int]:
    partition = ends.PartitionDataRequest(partition_index=0, leader_id=leader, leader_epoch=epoch)
    topic = ends.TopicDataRequest(topic_name=METADATA, partitions=[partition])
    return ends.EndQuorumEpochRequest(cluster_id=cluster_id, topics=[topic]), 1


def add(node_id: int, **values: Any) -> tuple[Message, int]:
    listener = quorum.Listener(name="CONTROLLER", host="127.0.0.1", port=1)
    given = {
        "cluster_id": CLUSTER_ID,
        "voter_directory_id": UNKNOWN_DIRECTORY,
        "listeners": [listener],
        **values,
    }
    return quorum.AddRaftVoterRequest(timeout_ms=1_000, voter_id=node_id, **given), 1


def remove(
    node_id: int, directory_id: bytes = UNKNOWN_DIRECTORY, cluster_id: str = CLUSTER_ID
) -> tuple[Message, int]:
    request = quorum.RemoveRaftVoterRequest(
        cluster_id=cluster_id, voter_id=node_id, voter_directory_id=directory_id
    )
    return request, 0


def update(receiver: Receiver, epoch: int, **values: Any) -> tuple[Message, int]:
    listener = quorum.Listener(name="CONTROLLER", host="127.0.0.1", port=1)
    levels = quorum.KRaftVersionFeature(
        min_supported_version=0, max_supported_version=values.pop("highest", 1)
    )
    given = {
        "cluster_id": CLUSTER_ID,
        "voter_id": receiver.id,
        "voter_directory_id": receiver.directory_id,
        "listeners": [listener],
        **values,
    }
    request = quorum.UpdateRaftVoterRequest(
        current_leader_epoch=epoch, kraft_version_feature=levels, **given
    )
    return request, 0


# Both sides are single voters, which lead epoch 1.
CASES: dict[str, Callable[[Receiver], tuple[Message, int]]] = {
    "vote in another cluster": lambda me: vote(me, 1, cluster_id=OTHER_CLUSTER),
    "vote on another topic": lambda me: vote(me, 1, topic="t"),
    "vote in an old epoch": lambda me: vote(me, 0),
    "vote for another leader": lambda me: vote(me, 1),
    "vote v0": lambda me: vote(me, 1, 0),
    "vote v1": lambda me: vote(me, 1, 1),
    "pre-vote": lambda me: vote(me, 1, last_offset_epoch=1, last_offset=9**9, pre_vote=True),
    "vote with the epoch's own records": lambda me: vote(me, 1, last_offset_epoch=1),
    "pre-vote with a later epoch's records": lambda me: vote(
        me, 1, last_offset_epoch=2, pre_vote=True
    ),
    "vote with a negative end offset": lambda me: vote(me, 1, last_offset=-1),
    "vote without a candidate": lambda me: vote(me, 1, replica_id=-1),
    "vote of another voter": lambda me: vote(me, 1, voter_id=77),
    "fetch in another cluster": lambda _: fetch(1, 0, 0, cluster_id=OTHER_CLUSTER),
    "fetch of another topic": lambda _: fetch(1, 0, 0, topic_id=UNKNOWN_DIRECTORY),
    "fetch in an old epoch": lambda _: fetch(0, 0, 0),
    "fetch in a later epoch": lambda _: fetch(2, 0, 0),
    "fetch below the start": lambda _: fetch(1, -1, 0),
    "fetch with a negative epoch": lambda _: fetch(1, 0, -1),
    "fetch with records of a later epoch": lambda _: fetch(1, 3, 5),
    "fetch with a negative wait": lambda _: fetch(1, 0, 0, max_wait_ms=-1),
    "fetch above the end": lambda _: fetch(1, 99_999, 1),
    "fetch with an epoch that does not exist": lambda _: fetch(1, 3, 0),
    "begin in another cluster": lambda _: begin(UNKNOWN_ID, 1, cluster_id=OTHER_CLUSTER),
    "begin on another topic": lambda _: begin(UNKNOWN_ID, 1, topic="t"),
    "begin an old epoch": lambda _: begin(UNKNOWN_ID, 0),
    "begin without a leader": lambda _: begin(-1, 1),
    "begin of its own epoch": lambda me: begin(me.id, 1),
    "begin for another voter": lambda me: begin(me.id, 1, 77),
    "end in another cluster": lambda _: end(UNKNOWN_ID, 1, OTHER_CLUSTER),
    "end of an old epoch": lambda _: end(UNKNOWN_ID, 0),
    "end without a leader": lambda _: end(-1, 1),
    "end of its own epoch": lambda me: end(me.id, 1),
    "add in another cluster": lambda _: add(UNKNOWN_ID, cluster_id=OTHER_CLUSTER),
    "add without an endpoint": lambda _: add(UNKNOWN_ID, listeners=[]),
    "add without a directory": lambda _: add(UNKNOWN_ID, voter_directory_id=bytes(16)),
    "add without an id": lambda _: add(-1),
    "add a voter": lambda me: add(me.id),
    "add an unreachable node": lambda _: add(UNKNOWN_ID),
    "remove in another cluster": lambda _: remove(UNKNOWN_ID, cluster_id=OTHER_CLUSTER),
    "remove an unknown voter": lambda _: remove(UNKNOWN_ID),
    "remove another directory": lambda me: remove(me.id),
    "remove without a directory": lambda me: remove(me.id, bytes(16)),
    "remove the last voter": lambda me: remove(me.id, me.directory_id),
    "update in another cluster": lambda me: update(me, 1, cluster_id=OTHER_CLUSTER),
    "update in an old epoch": lambda me: update(me, 0),
    "update in a later epoch": lambda me: update(me, 2),
    "update an unknown voter": lambda me: update(me, 1, voter_id=UNKNOWN_ID),
    "update another directory": lambda me: update(me, 1, voter_directory_id=UNKNOWN_DIRECTORY),
    "update without a directory": lambda me: update(me, 1, voter_directory_id=bytes(16)),
    "update without an id": lambda me: update(me, 1, voter_id=-1),
    "update without an endpoint": lambda me: update(me, 1, listeners=[]),
    "update without the level": lambda me: update(me, 1, highest=0),
}


@pytest.fixture(scope="module")
def both(
    kafka_jars: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JointQuorum]:
    """Start a dynamic quorum with a single voter of each side."""
    joint = JointQuorum(tmp_path_factory.mktemp("lone"), dynamic=True)
    ours, kafka = joint.nodes[OURS_ID], joint.nodes[KAFKA_ID]
    for node in (ours, kafka):
        node.settings["controller.quorum.bootstrap.servers"] = node.address
    ours.settings["cluster.standalone"] = "true"
    kafka.launch()
    ours.start()
    kafka.await_ready()
    joint.await_each_leads((OURS_ID, KAFKA_ID))
    yield joint
    for node in joint.nodes.values():
        node.close()


def comparable_response(joint: JointQuorum, node_id: int, case: str) -> str:
    """Return the response of a node as text, without the values that differ between nodes."""
    request, version = CASES[case](Receiver(joint, node_id))
    text = str(joint.exchange(node_id, request, version))
    port = joint.nodes[node_id].address.rpartition(":")[2]
    text = text.replace(f"leader_id={node_id},", "leader_id=ME,")
    text = text.replace(f"node_id={node_id},", "node_id=ME,").replace(f"port={port}", "port=P")
    return VARYING.sub(r"\1", ERROR_MESSAGE.sub("error_message=WORDS", text))


@pytest.mark.parametrize("case", CASES)
def test_the_response_equals_that_of_kafka(both: JointQuorum, case: str) -> None:
    assert comparable_response(both, OURS_ID, case) == comparable_response(both, KAFKA_ID, case)
