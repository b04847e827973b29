"""Create, grow and delete topics; elect leaders and move replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.admin.topics.partitions import ElectionType
from barnabas.client.admin.topics.topics import NewTopic
from barnabas.client.topic_partition import TopicPartition
from barnabas.console.changes.change import Done, change
from barnabas.console.web.forms import FormError
from barnabas.console.web.rendering import link

if TYPE_CHECKING:
    from barnabas.client.facade import Client
    from barnabas.console.web.forms import Fields

__all__ = ["ROUTES"]


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


ROUTES = [
    change("/topics/create", create_topic),
    change("/topic/partitions", add_partitions),
    change("/topic/delete", delete_topic),
    change("/topic/elect", elect_leaders),
    change("/reassignments/start", reassign),
    change("/reassignments/cancel", cancel_reassignment),
]
