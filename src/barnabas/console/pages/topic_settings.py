"""Forms that create a topic and edit its configs, with a preview of each change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Route

from barnabas.cli.common.units import config_meaning
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.admin.topics import NewTopic
from barnabas.client.errors import ClientError
from barnabas.console.console import console_of
from barnabas.console.forms import FormError, query_fields
from barnabas.console.pages.change import Done, Preview, change
from barnabas.console.plans.topic_settings import (
    PREFIX,
    changed_configs,
    load_defaults,
    load_settings,
    typed_configs,
)
from barnabas.console.rendering import link
from barnabas.console.tables import columns_of
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.client.facade import Client
    from barnabas.console.forms import Fields
    from barnabas.console.plans.topic_settings import TopicShape


async def show_new(request: Request) -> Response:
    """Show the form of a new topic, with the settings of another topic if one is named."""
    console, like = console_of(request), query_fields(request).stripped("like")

    def load(client: Client) -> tuple[TopicShape, TopicShape]:
        defaults = load_defaults(client)
        return defaults, load_settings(client, like) if like else defaults

    defaults, shape = await console.cluster.call(load)
    return console.page(
        request,
        "topic_new.html",
        like=like,
        shape=shape,
        default_partitions=defaults.partitions,
        default_replicas=defaults.replicas,
        prefix=PREFIX,
    )


async def show_edit(request: Request) -> Response:
    """Show the form of a topic's configs."""
    console, name = console_of(request), query_fields(request).required("name")
    shape = await console.cluster.call(lambda client: load_settings(client, name))
    return console.page(request, "topic_edit.html", name=name, shape=shape, prefix=PREFIX)


def _new_topic(form: Fields) -> NewTopic:
    partitions = form.number("partitions", -1, least=-1)
    replicas = form.number("replicas", -1, least=-1)
    return NewTopic(form.required("name"), partitions, replicas, typed_configs(form))


def create_topic(client: Client, form: Fields) -> Done:
    """Create a topic."""
    _create(client, _new_topic(form), validate_only=False)
    name = form.required("name")
    return Done(f"created topic {name}", link("/topic", name=name))


def preview_creation(client: Client, form: Fields) -> Preview | None:
    """Return what the new topic has in place of defaults, checked by the cluster."""
    if not form.has("check"):
        return None
    wanted = _new_topic(form)
    _create(client, wanted, validate_only=True)
    defaults = load_defaults(client)
    inherited = {each.name: each.inherited for each in defaults.settings}
    numbers = (
        ("partitions", defaults.partitions, wanted.partitions),
        ("replicas", defaults.replicas, wanted.replication_factor),
    )
    rows: list[tuple[object, ...]] = [
        (label, str(default), str(default if number < 0 else number), None)
        for label, default, number in numbers
        if number >= 0 or default is not None
    ]
    rows += [
        (key, inherited.get(key), value, config_meaning(key, value))
        for key, value in sorted(wanted.configs.items())
    ]
    columns = columns_of("Setting", "Default", "Value", "Which means")
    return Preview(f"Create the topic {wanted.name}?", "Create it", columns, rows)


def _create(client: Client, wanted: NewTopic, *, validate_only: bool) -> None:
    results = client.create_topics([wanted], validate_only=validate_only, raise_errors=False)
    error = results[wanted.name]
    if error is not None:
        fields = {
            ErrorCode.TOPIC_ALREADY_EXISTS: "name",
            ErrorCode.INVALID_TOPIC_EXCEPTION: "name",
            ErrorCode.INVALID_PARTITIONS: "partitions",
            ErrorCode.INVALID_REPLICATION_FACTOR: "replicas",
        }
        raise _at_field(error, wanted.configs) or FormError(
            str(error), fields.get(error.error_code or ErrorCode.NONE, "")
        ) from error


def _at_field(error: ClientError, keys: Iterable[str]) -> FormError | None:
    """Return the error at the config that it is about; None if it names none."""
    text = str(error)
    found = next((key for key in sorted(keys, key=len, reverse=True) if key in text), None)
    if error.error_code != ErrorCode.INVALID_CONFIG or found is None:
        return None
    return FormError(text, PREFIX + found)


def set_configs(client: Client, form: Fields) -> Done:
    """Set configs of a topic, and reset those whose field is empty."""
    name = form.required("name")
    changes = _changes(client, form, validate_only=False)
    return Done(f"changed {', '.join(sorted(changes))} of {name}", link("/topic", name=name))


def preview_configs(client: Client, form: Fields) -> Preview:
    """Return each config that changes, checked by the cluster: its value before and after."""
    name = form.required("name")
    settings = {each.name: each for each in load_settings(client, name).settings}
    changes = _changes(client, form, validate_only=True)
    rows: list[tuple[object, ...]] = []
    for key, value in sorted(changes.items()):
        known = settings.get(key)
        before = None if known is None else known.inherited if known.own is None else known.own
        after = value if value is not None else (known.inherited if known else None)
        rows.append((key, _meant(key, before), _meant(key, after), _source(value)))
    columns = columns_of("Config", "Now", "After", "Source after")
    return Preview(f"Change the configs of {name}?", "Change them", columns, rows)


def _meant(key: str, value: str | None) -> str | None:
    meaning = config_meaning(key, value)
    return f"{value} ({meaning})" if meaning else value


def _source(value: str | None) -> str:
    return "default" if value is None else "set on this topic"


def _changes(client: Client, form: Fields, *, validate_only: bool) -> dict[str, str | None]:
    """Send the changes of a form; return them.

    Raises:
        FormError: Nothing changes, or the cluster refuses a value.
    """
    name = form.required("name")
    changes = changed_configs(load_settings(client, name).settings, form)
    if not changes:
        raise FormError("nothing changes: the topic has all these values already")
    resource = ConfigResource(ResourceType.TOPIC, name)
    try:
        client.admin.alter_configs(resource, changes, validate_only=validate_only)
    except ClientError as error:
        raise _at_field(error, changes) or error from None
    return changes


ROUTES = [
    Route("/topics/new", show_new),
    Route("/topic/edit", show_edit),
    change("/topics/create", create_topic, preview_creation),
    change("/topic/configs", set_configs, preview_configs),
]
