"""A metadata quorum of Barnabas and Apache Kafka controllers, which vote for and follow each other.

All logs must be equal byte by byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jvm.joint_quorum import KAFKA_ID, JointQuorum
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


pytestmark = pytest.mark.conformance


@pytest.fixture
def joint(
    request: pytest.FixtureRequest, kafka_jars: Callable[[str], str], tmp_path: Path
) -> Iterator[JointQuorum]:
    quorum = JointQuorum(tmp_path, dynamic=request.param == "dynamic")
    yield quorum
    for node in quorum.nodes.values():
        node.close()


@pytest.mark.parametrize("joint", ["static"], indirect=True)
def test_controllers_of_both_kinds_vote_for_and_follow_each_other(joint: JointQuorum) -> None:
    joint.nodes[KAFKA_ID].launch()
    for node_id in (1, 2):
        joint.nodes[node_id].start()
    joint.await_leader()
    joint.nodes[KAFKA_ID].await_ready()
    joint.await_equal_logs()
    # Kafka elects the other Barnabas controller, or that controller elects Kafka.
    first, epoch = joint.await_leader()
    joint.nodes[first].kill()
    second, epoch = joint.await_leader(epoch)
    joint.await_equal_logs(len(joint.log(first)))
    if KAFKA_ID in (first, second):
        joint.nodes[first].start()
        joint.await_equal_logs()
        return
    # The first Barnabas controller has a shorter log, so that it must vote for Kafka.
    joint.nodes[second].kill()
    joint.nodes[first].start()
    joint.await_leader(epoch)
    eventually(lambda: max(joint.leaders(KAFKA_ID)) > epoch)
    led = joint.leaders(KAFKA_ID)
    assert led[min(later for later in led if later > epoch)] == KAFKA_ID
    joint.nodes[second].start()
    joint.await_equal_logs(len(joint.log(KAFKA_ID)) - 1)
    joint.await_leader(epoch)


@pytest.mark.parametrize("joint", ["dynamic"], indirect=True)
def test_leaders_of_both_kinds_add_voters_of_the_other_kind(joint: JointQuorum) -> None:
    joint.nodes[KAFKA_ID].launch()
    for node_id in (1, 2):
        joint.nodes[node_id].start()
    joint.nodes[KAFKA_ID].await_ready()
    assert joint.await_leader()[0] == KAFKA_ID
    for node_id in (1, 2):
        joint.add(node_id)
    joint.await_voters({1, 2, KAFKA_ID})
    joint.remove(KAFKA_ID)
    joint.await_voters({1, 2})
    joint.add(KAFKA_ID)
    joint.await_voters({1, 2, KAFKA_ID})
    joint.await_equal_logs()
