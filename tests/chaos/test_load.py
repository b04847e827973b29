"""The load of a campaign has started when the group has committed in each partition."""

from __future__ import annotations

from pathlib import Path

from chaos.history import Commit
from chaos.load import Load, LoadOptions
from chaos.transactional.history import Result, Transaction
from chaos.transactional_load import GROUP, TransactionalLoad, TransactionalOptions


def test_the_load_waits_for_the_first_commit_of_the_group_in_each_partition() -> None:
    load = Load("127.0.0.1:1", LoadOptions("t", partitions=2))
    for sends in load.sends:
        sends.acknowledge(sends.next_number(), 0, 1.0)
    assert load.waiting() == ["group chaos in 0", "group chaos in 1"]
    load.members[0].commits.append(Commit(1, 1, 1.0, 2.0))
    assert load.waiting() == ["group chaos in 0"]
    load.members[1].commits.append(Commit(0, 1, 1.0, 2.0))
    assert load.waiting() == []


def test_the_transactional_load_waits_for_the_first_commit_of_its_group_in_each_partition(
    tmp_path: Path,
) -> None:
    load = TransactionalLoad("127.0.0.1:1", tmp_path, 1, TransactionalOptions(input_partitions=2))
    roles = ["a transaction of role move", "a transaction of role process"]
    transaction = Transaction(1, "id", 1, (), 1.0, {1: 5})
    load.history.transactions[1] = transaction
    assert load.waiting() == [*roles, f"group {GROUP} in 0", f"group {GROUP} in 1"]
    transaction.result = Result.COMMITTED
    assert load.waiting() == [*roles, f"group {GROUP} in 0"]
    load.history.transactions[2] = Transaction(
        2, "id", 1, (), 2.0, {0: 7}, 2.0, 3.0, Result.COMMITTED
    )
    assert load.waiting() == roles
