"""Offsets of groups as forms and files have them.

Files are those of Kafka's tool `kafka-consumer-groups`: lines `topic,partition,offset`, or
`group,topic,partition,offset` if they are for several groups.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from barnabas.cli.admin.group_lag import group_positions
from barnabas.cli.admin.groups import OffsetMove, OffsetPlanError, OffsetTarget, plan_offsets
from barnabas.client.topic_partition import TopicPartition
from barnabas.console.forms import FormError
from barnabas.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.client.admin.group_descriptions import GroupDescription
    from barnabas.client.facade import Client
    from barnabas.console.forms import Fields

_LINES_MAX = 10_000
_OFFSET_MAX = 2**63 - 1


def offsets_csv(offsets: Mapping[TopicPartition, int]) -> str:
    """Return offsets as a file."""
    return "".join(
        f"{tp.topic},{tp.partition},{offset}\n" for tp, offset in sorted(offsets.items())
    )


def read_offsets_csv(text: str, group: str) -> dict[TopicPartition, int]:
    """Return the offsets of a group in a file; lines of other groups are left out.

    Raises:
        FormError: A line has another form, or the file has no offset of the group.
    """
    found: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(text.splitlines()), 1):
        if number > _LINES_MAX:
            raise FormError(f"the file has over {_LINES_MAX} lines", "csv")
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if len(cells) == 4:
            if cells[0] != group:
                continue
            cells = cells[1:]
        if len(cells) != 3 or not all(cell.isascii() and cell.isdigit() for cell in cells[1:]):
            raise FormError(f"line {number}: write topic,partition,offset", "csv")
        tp, offset = TopicPartition(cells[0], int(cells[1])), int(cells[2])
        if tp in found or offset > _OFFSET_MAX or tp.partition >= 2**31:
            raise FormError(f"line {number}: {tp} occurs twice, or a number is too large", "csv")
        found[tp] = offset
    if not found:
        raise FormError(f"the file has no offsets of {group}", "csv")
    return found


def planned_offsets(client: Client, group: GroupDescription, form: Fields) -> list[OffsetMove]:
    """Return the change of each partition that a form asks for.

    Args:
        client: The client.
        group: The group.
        form: `to` says where; `topic` and `partitions` say which (empty: all with offsets).

    Raises:
        FormError: A field is missing or malformed, or the group has no offsets to move.
    """
    if form.stripped("to") == "file":
        return _from_file(client, group, form)
    try:
        return plan_offsets(client, group, _partitions(client, form), _target(form))
    except OffsetPlanError as error:
        raise FormError(str(error), "topic") from None


def _target(form: Fields) -> OffsetTarget:
    match form.stripped("to"):
        case "earliest" | "latest" as kind:
            return OffsetTarget(kind)
        case "offset":
            return OffsetTarget("offset", form.number("offset"))
        case "time":
            return OffsetTarget("time", form.moment("time"))
        case "ago":
            return OffsetTarget("time", max(0, SystemClock().wall_ms() - form.duration("ago")))
        case "shift":
            return OffsetTarget("shift", _signed(form, "shift"))
        case other:
            choices = "earliest, latest, offset, time, ago, shift or file"
            raise FormError(f"{form.label('to')}: choose {choices}, not {other!r}", "to")


def _signed(form: Fields, name: str) -> int:
    text = form.required(name)
    digits = text.removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise FormError(f"{form.label(name)} must be a number such as 100 or -100", name)
    return int(text)


def _partitions(client: Client, form: Fields) -> list[TopicPartition] | None:
    topic = form.stripped("topic")
    if not topic:
        if form.stripped("partitions"):
            raise FormError("name the topic of the partitions", "topic")
        return None
    known = client.describe_topics([topic], may_be_new=False)[topic].partitions
    numbers = form.integers("partitions") if form.stripped("partitions") else sorted(known)
    for number in numbers:
        if number not in known:
            raise FormError(f"{topic} has no partition {number}", "partitions")
    return [TopicPartition(topic, number) for number in dict.fromkeys(numbers)]


def _from_file(client: Client, group: GroupDescription, form: Fields) -> list[OffsetMove]:
    uploaded = form.file("file")
    text = form.text("csv") if uploaded is None else uploaded.decode("utf-8", "replace")
    wanted = read_offsets_csv(text, group.group_id)
    _check_exist(client, wanted)
    starts = client.list_offsets(dict.fromkeys(wanted, "earliest"))
    ends = client.list_offsets(dict.fromkeys(wanted, "latest"))
    before = group_positions(client, group)
    found = []
    for tp, offset in sorted(wanted.items()):
        after = min(max(offset, starts[tp].offset), ends[tp].offset)
        found.append(OffsetMove(tp, before.get(tp), after, after != offset))
    return found


def _check_exist(client: Client, wanted: Iterable[TopicPartition]) -> None:
    topics = client.describe_topics({tp.topic for tp in wanted}, may_be_new=False)
    for tp in wanted:
        if tp.partition not in topics[tp.topic].partitions:
            raise FormError(f"{tp.topic} has no partition {tp.partition}", "csv")
