"""A described streams group for tests of commands."""

from __future__ import annotations

from typing import Any

from barnabas.client.admin.group_descriptions import (
    StreamsGroupDescription,
    StreamsMember,
    StreamsTasks,
    Subtopology,
    Task,
)

READS = Subtopology("0", ("in",), ("app-rep",), (), ("app-log",))
COUNTS = Subtopology("1", (), (), ("app-rep",), ())


def tasks(*active: Task, standby: tuple[Task, ...] = ()) -> StreamsTasks:
    return StreamsTasks(active, standby, ())


def member(name: str, own: StreamsTasks, target: StreamsTasks | None = None, **more: Any) -> Any:
    epochs = {"epoch": 4, "topology_epoch": 2} | more
    wanted = own if target is None else target
    return StreamsMember(
        f"{name}-1",
        None,
        name,
        "10.0.0.1",
        f"process-{name}",
        epochs["epoch"],
        epochs["topology_epoch"],
        own,
        wanted,
    )


def streams_group(*members: StreamsMember, state: str = "Stable", **more: Any) -> Any:
    topology = {"topology_epoch": 2, "subtopologies": (READS, COUNTS)} | more
    return StreamsGroupDescription("app", state, 4, 4, members=members, **topology)
