"""Describes consumer, share or streams groups, each in its shard."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from barnabas.coordinator.group.refusal import RefusalError
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.coordinator.runtime.responses.append_errors import client_error
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.coordinator.group.group_shard import GroupShard
    from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime

D = TypeVar("D")


def describe_groups(
    runtime: CoordinatorRuntime[GroupShard],
    group_ids: list[str],
    describe: Callable[[GroupShard, str], D],
    failed: Callable[[str, ErrorCode, str | None], D],
    on_done: Callable[[list[D]], None],
) -> Generator[None, None, None]:
    """Describe groups. Yields after each group.

    A response waits for the commit of the records that it shows.

    Args:
        runtime: the shards.
        group_ids: the groups.
        describe: returns the description of a group in its shard. Raises RefusalError.
        failed: returns the description of a group with an error and perhaps a message.
        on_done: gets the descriptions in the order of `group_ids`; called once.
    """
    found: dict[int, D] = {}

    def on_described(index: int, described: D | None, error: ErrorCode) -> None:
        if described is None:
            described = failed(group_ids[index], client_error(error), None)
        found[index] = described
        if len(found) == len(group_ids):
            on_done([found[each] for each in range(len(group_ids))])

    def operation(group_id: str, shard: GroupShard) -> CoordinatorResult[D]:
        try:
            return CoordinatorResult(describe(shard, group_id))
        except RefusalError as error:
            return CoordinatorResult(failed(group_id, error.error, error.message))

    if not group_ids:
        on_done([])
    for index, group_id in enumerate(group_ids):
        if not group_id:
            on_described(index, None, ErrorCode.INVALID_GROUP_ID)
        else:
            runtime.write(group_id, partial(operation, group_id), partial(on_described, index))
        yield
