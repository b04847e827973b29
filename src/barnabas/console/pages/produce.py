"""Writing one record, with a check of JSON and schemas while the user types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import JSONResponse
from starlette.routing import Route

from barnabas.console.absent import require_topic
from barnabas.console.console import console_of
from barnabas.console.formats import size
from barnabas.console.forms import FormError, query_fields
from barnabas.console.pages.change import Done, change, checked_form
from barnabas.console.rendering import link
from barnabas.console.writing.payloads import KINDS, PARTS, headers, payload
from barnabas.serializers.errors import RegistryError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.client.facade import Client
    from barnabas.console.console import Console
    from barnabas.console.forms import Fields
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
    subjects, problem = ([], "") if registry is None else await _subjects(console, registry)
    kinds = {key: text for key, text in KINDS.items() if registry or key != "schema"}
    return console.page(
        request,
        "produce.html",
        topic=topic,
        kinds={
            "key": list(kinds.items()),
            "value": [(key, text) for key, text in kinds.items() if key != "auto"],
        },
        compressions=[(name, name) for name in COMPRESSIONS],
        subjects=subjects,
        registry_problem=problem,
        has_registry=registry is not None,
    )


async def _subjects(console: Console, registry: SchemaRegistry) -> tuple[list[str], str]:
    """Return the first subjects, and the problem with the registry."""
    try:
        async with console.examining:
            found = await console.call_service(registry.subjects)
    except RegistryError as error:
        return [], str(error)
    return found[:_SUBJECTS_MAX], ""


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
        of=lambda console, client: (client, console.settings.registry),
    ),
]
