"""The load of a campaign has started when the group has committed in each partition."""

from __future__ import annotations

from chaos.history import Commit
from chaos.load import Load, LoadOptions


def test_the_load_waits_for_the_first_commit_of_the_group_in_each_partition() -> None:
    load = Load("127.0.0.1:1", LoadOptions("t", partitions=2))
    for sends in load.sends:
        sends.acknowledge(sends.next_number(), 0, 1.0)
    assert load.waiting() == ["group in 0", "group in 1"]
    load.members[0].commits.append(Commit(1, 1, 1.0, 2.0))
    assert load.waiting() == ["group in 0"]
    load.members[1].commits.append(Commit(0, 1, 1.0, 2.0))
    assert load.waiting() == []
