"""Changes of topics: their partitions, leaders, replicas, configs and records.

Configs of brokers are set and reset here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.admin.partitions import ElectionType
from barnabas.client.admin.topics import NewTopic
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition
from barnabas.console.access.roles import Role
from barnabas.console.forms import FormError
from barnabas.console.pages.change import Done, Preview, change
from barnabas.console.rendering import link

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.client.facade import Client
    from barnabas.console.forms import Fields


def create_topic(client: Client, form: Fields) -> Done:
    """Create a topic."""
    name = form.required("name")
    configs = {}
    for line in form.text("configs").splitlines():
        key, equals, value = line.partition("=")
        if line.strip():
            if not equals:
                raise FormError(f"write each config as key=value, not {line.strip()!r}")
            configs[key.strip()] = value.strip()
    partitions = form.number("partitions", -1, least=-1)
    replicas = form.number("replicas", -1, least=-1)
    error = client.admin.create_topics(
        [NewTopic(name, partitions, replicas, configs)], raise_errors=False
    )[name]
    if error is not None:
        raise error
    return Done(f"created topic {name}", link("/topic", name=name))


def add_partitions(client: Client, form: Fields) -> Done:
    """Raise the number of partitions of a topic."""
    name, count = form.required("name"), form.number("partitions", least=1)
    error = client.create_partitions({name: count}, raise_errors=False)[name]
    if error is not None:
        raise error
    return Done(f"{name} has {count} partitions", link("/topic", name=name))


def delete_topic(client: Client, form: Fields) -> Done:
    """Delete a topic with all its records."""
    name = form.required("name")
    form.confirm(name)
    error = client.delete_topics([name], raise_errors=False)[name]
    if error is not None:
        raise error
    return Done(f"deleted topic {name}", "/topics")


def elect_leaders(client: Client, form: Fields) -> Done:
    """Elect the preferred leaders of a topic."""
    name = form.required("name")
    numbers = client.describe_topics([name])[name].partitions
    wanted = [TopicPartition(name, number) for number in numbers]
    results = client.admin.elect_leaders(ElectionType.PREFERRED, wanted)
    count = sum(error is None for error in results.values())
    return Done(f"elected {count} leaders of {name}", link("/topic", name=name))


def reassign(client: Client, form: Fields) -> Done:
    """Move the replicas of a partition to other brokers."""
    tp = TopicPartition(form.required("topic"), form.number("partition"))
    brokers = form.integers("brokers")
    error = client.admin.alter_reassignments({tp: brokers}, raise_errors=False)[tp]
    if error is not None:
        raise error
    return Done(f"began to move {tp} to {', '.join(map(str, brokers))}", "/reassignments")


def cancel_reassignment(client: Client, form: Fields) -> Done:
    """Cancel the reassignment of a partition."""
    tp = TopicPartition(form.required("topic"), form.number("partition"))
    error = client.admin.alter_reassignments({tp: None}, raise_errors=False)[tp]
    if error is not None:
        raise error
    return Done(f"canceled the reassignment of {tp}", "/reassignments")


def preview_election(client: Client, form: Fields) -> Preview:
    """Return the partitions that get another leader."""
    name = form.required("name")
    found = client.describe_topics([name])[name].partitions
    rows: list[tuple[object, ...]] = [
        (f"{name}-{number}", each.leader, each.replicas[0])
        for number, each in sorted(found.items())
        if each.leader != each.replicas[0]
    ]
    columns = ("Partition", "Leader now", "Preferred leader")
    return Preview(f"Elect the preferred leaders of {name}?", "Elect them", columns, rows)


def preview_move(client: Client, form: Fields) -> Preview:
    """Return the replicas of a partition before and after a move, or after its cancellation."""
    tp = TopicPartition(form.required("topic"), form.number("partition"))
    found = client.describe_topics([tp.topic])[tp.topic].partitions.get(tp.partition)
    if found is None:
        raise FormError(f"{tp.topic} has no partition {tp.partition}")
    columns = ("Partition", "Replicas now", "Replicas after")
    if form.has("brokers"):
        question, button = f"Move the replicas of {tp}?", "Move them"
        after = form.integers("brokers")
    else:
        question, button = f"Cancel the move of {tp}?", "Cancel the move"
        move = client.admin.list_reassignments([tp]).get(tp)
        if move is None:
            raise FormError(f"the replicas of {tp} do not move")
        after = [node for node in move.replicas if node not in move.adding]
    row = (str(tp), _nodes(found.replicas), _nodes(after))
    return Preview(question, button, columns, [row])


def _nodes(nodes: Iterable[int]) -> str:
    return ", ".join(map(str, nodes))


def set_topic_config(client: Client, form: Fields) -> Done:
    """Set a config of a topic, or reset it to its default."""
    name = form.required("name")
    text = _alter(client, ConfigResource(ResourceType.TOPIC, name), form)
    return Done(f"{name}: {text}", link("/topic", name=name))


def set_broker_config(client: Client, form: Fields) -> Done:
    """Set a config of a broker at run time, or reset it."""
    node = form.number("id")
    text = _alter(client, ConfigResource(ResourceType.BROKER, str(node)), form)
    return Done(f"broker {node}: {text}", link("/broker", id=node))


def _alter(client: Client, resource: ConfigResource, form: Fields) -> str:
    key = form.required("key")
    value = None if form.has("reset") else form.stripped("value")
    client.admin.alter_configs(resource, {key: value})
    return f"{key} is reset" if value is None else f"{key} is {value}"


def preview_config_reset(client: Client, form: Fields) -> Preview | None:
    """Return the value that a reset removes; None if a value is set."""
    if not form.has("reset"):
        return None
    key = form.required("key")
    if form.has("name"):
        resource = ConfigResource(ResourceType.TOPIC, form.required("name"))
    else:
        resource = ConfigResource(ResourceType.BROKER, str(form.number("id")))
    entries = client.admin.describe_configs([resource], keys=[key])[resource]
    if isinstance(entries, ClientError):
        raise entries
    rows: list[tuple[object, ...]] = [
        (each.name, "secret" if each.is_sensitive else each.value, each.source) for each in entries
    ]
    columns = ("Config", "Value that is removed", "Source")
    return Preview(f"Reset {key} of {resource} to its default?", "Reset it", columns, rows)


def produce(client: Client, form: Fields) -> Done:
    """Write a record, and wait until it is committed."""
    topic = form.required("topic")
    # A missing topic must not be created by a typing error.
    client.describe_topics([topic])
    key = form.text("key").encode() or None
    # Browsers send line ends as CR LF.
    value = form.text("value").replace("\r\n", "\n").encode()
    partition = form.number("partition") if form.stripped("partition") else None
    headers = _headers(form.text("headers"))
    with client.producer() as producer:
        sent = producer.send(
            topic, None if form.has("tombstone") else value, key, partition, headers=headers
        )
        written = sent.result()
    place = {"topic": topic, "partition": written.partition, "offset": written.offset}
    return Done(
        f"wrote to {topic}, partition {written.partition}, offset {written.offset}",
        link("/message", **place),
    )


def _headers(text: str) -> list[tuple[str, bytes | None]]:
    headers: list[tuple[str, bytes | None]] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise FormError(f"write each header as name=value, not {line.strip()!r}")
        headers.append((name.strip(), value.strip().encode()))
    return headers


ROUTES = [
    change("/topics/create", create_topic),
    change("/topic/partitions", add_partitions),
    change("/topic/delete", delete_topic, role=Role.ADMIN),
    change("/topic/elect", elect_leaders, preview_election),
    change("/reassignments/start", reassign, preview_move),
    change("/reassignments/cancel", cancel_reassignment, preview_move),
    change("/topic/config", set_topic_config, preview_config_reset),
    change("/broker/config", set_broker_config, preview_config_reset),
    change("/produce", produce),
]
