"""Changes of topics: more partitions, elections, deleted records, deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.partitions.move_progress import known_sizes
from barnabas.client.admin.partitions import ElectionType
from barnabas.client.errors import ClientError, UnknownTopicError
from barnabas.client.topic_partition import TopicPartition
from barnabas.console.access.users import Role
from barnabas.console.formats import number
from barnabas.console.forms import FormError
from barnabas.console.pages.change import Done, Preview, change
from barnabas.console.rendering import link
from barnabas.console.tables import columns_of
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.client.facade import Client
    from barnabas.console.forms import Fields


def add_partitions(client: Client, form: Fields) -> Done:
    """Raise the number of partitions of a topic."""
    name, count = form.required("name"), form.number("partitions", least=1)
    error = client.create_partitions({name: count}, raise_errors=False)[name]
    if error is not None:
        raise FormError(str(error), "partitions") from error
    return Done(
        f"{name} has {count} partitions",
        link("/topic", name=name),
        is_reported=lambda own: len(own.describe_topics([name])[name].partitions) >= count,
    )


def preview_partitions(client: Client, form: Fields) -> Preview:
    """Return the number of partitions before and after, and what it means for keys."""
    name, count = form.required("name"), form.number("partitions", least=1)
    before = len(client.describe_topics([name], may_be_new=False)[name].partitions)
    if count <= before:
        raise FormError(f"{name} has {before} partitions: the number can only grow", "partitions")
    return Preview(
        f"Add {count - before} partitions to {name}?",
        "Add them",
        columns_of("Topic", ("Partitions now", "number"), ("Partitions after", "number")),
        [(name, before, count)],
        "New records of a key may go to another partition than its old ones. The number of "
        "partitions can never become smaller.",
    )


def delete_topic(client: Client, form: Fields) -> Done:
    """Delete a topic with all its records."""
    name = form.required("name")
    form.confirm(name)
    error = client.delete_topics([name], raise_errors=False)[name]
    if error is not None:
        raise error
    return Done(f"deleted topic {name}", "/topics", is_reported=lambda own: _is_gone(own, name))


def _is_gone(client: Client, name: str) -> bool:
    try:
        client.describe_topics([name], may_be_new=False)
    except UnknownTopicError:
        return True
    return False


def preview_deletion(client: Client, form: Fields) -> Preview:
    """Return the partitions and records that are lost."""
    name = form.required("name")
    form.confirm(name)
    spans = _spans(client, name)
    columns = columns_of("Partition", ("Records", "number"), ("Size", "size", "unknown"))
    rows: list[tuple[object, ...]] = [
        (each.partition, each.end - each.start, each.size) for each in spans
    ]
    warning = "The records cannot be restored. Programs that write may create the topic anew."
    return Preview(f"Delete the topic {name}?", "Delete it", columns, rows, warning)


class _Span(NamedTuple):
    partition: TopicPartition
    start: int
    end: int
    # Bytes of a replica; None if no broker says it.
    size: int | None


def _spans(client: Client, name: str) -> list[_Span]:
    """Return the offsets and sizes of the partitions that have a leader."""
    topic = client.describe_topics([name], may_be_new=False)[name]
    wanted = [TopicPartition(name, number) for number in sorted(topic.available)]
    starts = client.list_offsets(dict.fromkeys(wanted, "earliest"))
    ends = client.list_offsets(dict.fromkeys(wanted, "latest"))
    leaders = {each.leader for each in topic.partitions.values() if each.leader >= 0}
    sizes = known_sizes(client, leaders)
    return [_Span(tp, starts[tp].offset, ends[tp].offset, sizes.get(tp)) for tp in wanted]


def purge(client: Client, form: Fields) -> Done:
    """Delete the oldest records of a topic."""
    name = form.required("name")
    limits = {
        TopicPartition(name, number): offset
        for number, offset in (
            map(int, pair.split(":")) for pair in form.required("limits").split()
        )
    }
    results = client.admin.delete_records(limits, raise_errors=False)
    for found in results.values():
        if isinstance(found, ClientError):
            raise found
    return Done(f"deleted records of {len(limits)} partitions of {name}", link("/topic", name=name))


def preview_purge(client: Client, form: Fields) -> Preview:
    """Return the new start of each partition, and how many records and bytes are deleted."""
    name = form.required("name")
    spans = _spans(client, name)
    limits = _purge_limits(client, name, spans, form)
    rows: list[tuple[object, ...]] = []
    for each in spans:
        if each.partition in limits:
            after = limits[each.partition]
            gone, count = after - each.start, each.end - each.start
            share = None if each.size is None or not count else each.size * gone / count
            rows.append((each.partition, each.start, after, gone, share if gone else 0))
    total = sum(limits[each.partition] - each.start for each in spans if each.partition in limits)
    return Preview(
        f"Delete {number(total)} records of {name}?",
        "Delete them",
        columns_of(
            "Partition",
            ("Start now", "number"),
            ("Start after", "number"),
            ("Records deleted", "number"),
            ("Size, about", "size", "unknown"),
        ),
        rows,
        "The records cannot be restored. Brokers free the disk when a whole segment is deleted.",
        # Records that arrive meanwhile stay.
        [("limits", " ".join(f"{tp.partition}:{limit}" for tp, limit in limits.items()))],
    )


def _purge_limits(
    client: Client, name: str, spans: list[_Span], form: Fields
) -> dict[TopicPartition, int]:
    """Return the new start offsets of the chosen partitions, inside of their logs."""
    numbers = set(form.integers("partitions")) if form.stripped("partitions") else None
    chosen = [each for each in spans if numbers is None or each.partition.partition in numbers]
    missing = (numbers or set()) - {each.partition.partition for each in chosen}
    if missing:
        raise FormError(f"{name} has no partition {min(missing)} with a leader", "partitions")
    match form.stripped("to"):
        case "all":
            wanted = {each.partition: each.end for each in chosen}
        case "offset":
            wanted = {each.partition: form.number("offset") for each in chosen}
        case "time":
            moment = form.moment("time")
            found = client.list_offsets({each.partition: moment for each in chosen})
            # No record at or after the time: all records are older.
            wanted = {
                each.partition: found[each.partition].offset
                if found[each.partition].offset >= 0
                else each.end
                for each in chosen
            }
        case other:
            label = form.label("to")
            raise FormError(f"{label}: choose all, offset or time, not {other!r}", "to")
    return {
        each.partition: min(max(wanted[each.partition], each.start), each.end) for each in chosen
    }


def elect_leaders(client: Client, form: Fields) -> Done:
    """Elect the preferred leaders of a topic, or of all topics."""
    name = form.stripped("name")
    wanted = [tp for tp, _, _ in _not_preferred(client, name)]
    results = client.admin.elect_leaders(ElectionType.PREFERRED, wanted, raise_errors=False)
    # Another election may have been faster.
    errors = {
        tp: error
        for tp, error in results.items()
        if error is not None and error.error_code != ErrorCode.ELECTION_NOT_NEEDED
    }
    count = len(wanted) - len(errors)
    if errors:
        tp, error = min(errors.items(), key=lambda pair: pair[0])
        raise FormError(f"elected {count} leaders; {len(errors)} were not elected, {tp}: {error}")
    page = link("/topic", name=name) if name else "/partitions"
    return Done(f"elected {count} leaders of {name or 'all topics'}", page)


def preview_election(client: Client, form: Fields) -> Preview:
    """Return the partitions that get another leader."""
    name = form.stripped("name")
    rows: list[tuple[object, ...]] = [
        (tp, leader, preferred) for tp, leader, preferred in _not_preferred(client, name)
    ]
    columns = columns_of("Partition", ("Leader now", "id"), ("Preferred leader", "id"))
    question = f"Elect the preferred leaders of {name or 'all topics'}?"
    return Preview(question, "Elect them", columns, rows)


def _not_preferred(client: Client, name: str) -> list[tuple[TopicPartition, int, int]]:
    """Return partitions with another leader than the preferred one: both, by partition."""
    found = client.describe_topics([name], may_be_new=False) if name else client.describe_topics()
    return [
        (TopicPartition(topic.name, number), each.leader, each.replicas[0])
        for topic in found.values()
        for number, each in sorted(topic.partitions.items())
        if each.replicas and each.leader != each.replicas[0]
    ]


ROUTES = [
    change("/topic/partitions", add_partitions, preview_partitions),
    change("/topic/purge", purge, preview_purge, role=Role.ADMIN),
    change("/topic/delete", delete_topic, preview_deletion, role=Role.ADMIN),
    change("/topic/elect", elect_leaders, preview_election),
]
