"""Write one record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.console.changes.change import Done, change
from barnabas.console.web.forms import FormError
from barnabas.console.web.rendering import link

if TYPE_CHECKING:
    from barnabas.client.facade import Client
    from barnabas.console.web.forms import Fields

__all__ = ["ROUTES"]


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
            topic,
            None if form.has("tombstone") else value,
            key,
            partition,
            headers=headers,
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


ROUTES = [change("/produce", produce)]
