"""Writing one record, with a check of JSON and schemas while the user types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse
from starlette.routing import Route

from barnabas.console.absent import require_topic
from barnabas.console.console import console_of
from barnabas.console.formats import size
from barnabas.console.forms import Draft, Fields, FormError, query_fields
from barnabas.console.pages.change import Done, Shown, change, checked_form
from barnabas.console.rendering import link
from barnabas.console.writing.payloads import KINDS, PARTS, headers, payload, schema_example
from barnabas.serializers.errors import RegistryError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.client.facade import Client
    from barnabas.serializers.lookups import Part
    from barnabas.serializers.registry import SchemaRegistry

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
# Subjects that the form suggests.
_SUBJECTS_MAX = 500


async def show_produce(request: Request) -> Response:
    """Show the form of a record."""
    console, query = console_of(request), query_fields(request)
    topic = query.stripped("topic")
    if topic:
        await require_topic(console.cluster, topic)
    registry = console.settings.registry
    async with console.examining:
        values = await console.call_service(lambda: _form_values(registry, topic))
    return console.page(request, "produce.html", **values)


def _form_values(registry: SchemaRegistry | None, topic: str) -> dict[str, Any]:
    """Return the values of the template; it asks the registry for its subjects."""
    kinds = {key: text for key, text in KINDS.items() if registry or key != "schema"}
    subjects, problem = ([], "") if registry is None else _subjects(registry)
    return {
        "topic": topic,
        "kinds": {
            "key": list(kinds.items()),
            "value": [(key, text) for key, text in kinds.items() if key != "auto"],
        },
        "compressions": [(name, name) for name in COMPRESSIONS],
        "subjects": subjects,
        "registry_problem": problem,
        "has_registry": registry is not None,
        "checked": {},
    }


def _subjects(registry: SchemaRegistry) -> tuple[list[str], str]:
    """Return the first subjects, and the problem with the registry."""
    try:
        return registry.subjects()[:_SUBJECTS_MAX], ""
    except RegistryError as error:
        return [], str(error)


async def check_record(request: Request) -> Response:
    """Return whether key and value fit their kinds, for the script of the form."""
    console = console_of(request)
    form, _ = await checked_form(request)
    registry = console.settings.registry
    topic = form.stripped("topic")
    async with console.examining:
        found = await console.call_service(
            lambda: {part: _checked(form, part, topic, registry) for part in PARTS}
        )
    return JSONResponse(found)


def _checked(
    form: Fields, part: Part, topic: str, registry: SchemaRegistry | None
) -> dict[str, object]:
    if form.text(f"{part}_kind") not in ("json", "schema", "hex", "base64"):
        return {"ok": True, "text": ""}
    try:
        data = payload(form, part, topic, registry)
    except FormError as error:
        return {"ok": False, "text": str(error)}
    return {"ok": True, "text": "null" if data is None else f"valid, {size(len(data))}"}


def help_to_write(registry: SchemaRegistry | None, form: Fields) -> Shown | None:
    """Return the form with an example, or with the result of a check; None to write the record.

    Nothing is written.
    """
    wanted = form.text("example")
    if not wanted and not form.has("check"):
        return None
    pairs = form.all_but("csrf", "here", "check", "example")
    checked: dict[str, Any] = {}
    topic = form.stripped("topic")
    if wanted in PARTS:
        text = schema_example(form, wanted, topic, registry)
        own = {wanted: text, f"{wanted}_kind": "schema"}
        pairs = [*((name, value) for name, value in pairs if name not in own), *own.items()]
    else:
        checked = {part: _checked(form, part, topic, registry) for part in PARTS}
    values = {**_form_values(registry, topic), "checked": checked}
    return Shown("produce.html", {**values, "draft": Draft("/produce", Fields(pairs))})


def produce(client: Client, registry: SchemaRegistry | None, form: Fields) -> Done:
    """Write a record, and wait until it is committed."""
    topic = form.required("topic")
    partition = form.number("partition") if form.stripped("partition") else None
    compression = form.text("compression") or "none"
    if compression not in COMPRESSIONS:
        raise FormError(f"there is no compression {compression}", "compression")
    timestamp_ms = form.moment("timestamp") if form.stripped("timestamp") else None
    key, value = (payload(form, part, topic, registry) for part in PARTS)
    sent_headers = headers(form)
    # A missing topic must not be created by a typing error.
    client.describe_topics([topic])
    with client.producer(**{"compression.type": compression}) as producer:
        sent = producer.send(
            topic, value, key, partition, headers=sent_headers, timestamp_ms=timestamp_ms
        )
        written = sent.result()
    place = {"topic": topic, "partition": written.partition, "offset": written.offset}
    return Done(
        f"wrote to {topic}, partition {written.partition}, offset {written.offset}",
        link("/message", **place),
    )


ROUTES = [
    Route("/produce", show_produce, methods=["GET"]),
    Route("/produce/check", check_record, methods=["POST"]),
    change(
        "/produce",
        lambda target, form: produce(*target, form),
        lambda target, form: help_to_write(target[1], form),
        of=lambda console, client: (client, console.settings.registry),
    ),
]
