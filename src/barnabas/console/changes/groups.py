"""Reset the offsets of a group, or delete it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.admin.group_lag import group_positions
from barnabas.cli.common.output import moment_ms
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition
from barnabas.console.changes.change import Done, Preview, change
from barnabas.console.web.forms import FormError
from barnabas.console.web.rendering import link

if TYPE_CHECKING:
    from barnabas.client.facade import Client
    from barnabas.console.web.forms import Fields

__all__ = ["ROUTES"]


def reset_offsets(client: Client, form: Fields) -> Done:
    """Move the offsets of a group without members in all partitions of a topic."""
    name, topic = form.required("id"), form.required("topic")
    numbers = client.describe_topics([topic])[topic].partitions
    partitions = [TopicPartition(topic, number) for number in numbers]
    offsets = _targets(client, partitions, form)
    kinds = {each.group_id: each.type for each in client.admin.list_groups()}
    if kinds.get(name) == "share":
        results = client.admin.alter_share_group_offsets(name, offsets, raise_errors=False)
    else:
        results = client.admin.alter_group_offsets(name, offsets, raise_errors=False)
    for error in results.values():
        if error is not None:
            raise error
    return Done(f"moved {name} in {len(offsets)} partitions of {topic}", link("/group", id=name))


def preview_reset(client: Client, form: Fields) -> Preview:
    """Return where the offsets are, and where they will be."""
    name, topic = form.required("id"), form.required("topic")
    described = client.admin.describe_groups([name])[name]
    if isinstance(described, ClientError):
        raise described
    if described.members:
        raise FormError(
            f"{name} has {len(described.members)} members, which would overwrite the offsets: stop "
            "them first"
        )
    numbers = client.describe_topics([topic])[topic].partitions
    partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
    positions = group_positions(client, described)
    rows: list[tuple[object, ...]] = []
    for tp, after in _targets(client, partitions, form).items():
        before = positions.get(tp)
        rows.append((str(tp), before, after, None if before is None else f"{after - before:+d}"))
    columns = ("Partition", "Now", "After", "By")
    return Preview(f"Move the offsets of {name} in {topic}?", "Move them", columns, rows)


def _targets(
    client: Client, partitions: list[TopicPartition], form: Fields
) -> dict[TopicPartition, int]:
    """Return the new offsets, inside of the logs."""
    starts = client.list_offsets(dict.fromkeys(partitions, "earliest"))
    ends = client.list_offsets(dict.fromkeys(partitions, "latest"))
    wanted = {tp: found.offset for tp, found in ends.items()}
    match form.stripped("to"):
        case "earliest":
            wanted = {tp: found.offset for tp, found in starts.items()}
        case "latest":
            pass
        case "offset":
            wanted = dict.fromkeys(partitions, form.number("offset"))
        case "time":
            moment = max(0, moment_ms(form.required("time"), "time"))
            found_by_time = client.list_offsets(dict.fromkeys(partitions, moment))
            # A time after the last record means the end.
            for tp, found in found_by_time.items():
                wanted[tp] = found.offset if found.offset >= 0 else ends[tp].offset
        case other:
            raise FormError(f"to must be earliest, latest, offset or time, not {other!r}")
    return {
        tp: min(max(offset, starts[tp].offset), ends[tp].offset) for tp, offset in wanted.items()
    }


def delete_group(client: Client, form: Fields) -> Done:
    """Delete a group without members, with its offsets."""
    name = form.required("id")
    form.confirm(name)
    client.admin.delete_groups([name])
    return Done(f"deleted group {name}", "/groups")


ROUTES = [
    change("/group/reset", reset_offsets, preview_reset),
    change("/group/delete", delete_group),
]
