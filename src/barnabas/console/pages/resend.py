"""Sending chosen messages once more, to the same or another topic."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from starlette.routing import Route

from barnabas.client.errors import ClientError
from barnabas.console.console import console_of
from barnabas.console.formats import size
from barnabas.console.forms import FormError, query_fields
from barnabas.console.messages.record_view import record_size
from barnabas.console.pages.change import Done, Preview, change
from barnabas.console.rendering import link
from barnabas.console.tables import Column, columns_of, tabulate
from barnabas.console.writing.resending import RECORDS_MAX, Resending, chosen_places, read_sources

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from barnabas.client.facade import Client
    from barnabas.client.fetch.record_set import ConsumerRecord
    from barnabas.console.forms import Fields
    from barnabas.console.messages.masking import Masks
    from barnabas.console.messages.record_view import ShownMessage

# Bytes of a key and of a value in the list of chosen messages.
_LISTED_BYTES = 200


class _Source(NamedTuple):
    """A chosen message, and what the page shows of it."""

    record: ConsumerRecord
    shown: ShownMessage


_SOURCES: tuple[Column[_Source], ...] = (
    Column("place", "Offset", lambda row: (row.record.partition, row.record.offset)),
    Column("time", "Time", lambda row: row.record.timestamp, style="time"),
    Column("size", "Size", lambda row: record_size(row.record), "size"),
    Column(
        "headers",
        "Headers",
        lambda row: ", ".join(name for name, _ in row.record.headers),
        "name",
    ),
    Column("key", "Key", lambda row: row.shown.key.text, style="value"),
    Column("value", "Value", lambda row: row.shown.value.text, style="value"),
)


def _source_text(row: _Source) -> str:
    """Return what the filter looks in: the place, and the masked texts of the message."""
    headers = " ".join(f"{name} {value.text}" for name, value in row.shown.headers)
    place = f"{row.record.partition}:{row.record.offset}"
    return f"{place} {row.shown.key.text} {row.shown.value.text} {headers}"


async def show_resend(request: Request) -> Response:
    """Show the chosen messages, and what to change in their copies."""
    console, query = console_of(request), query_fields(request)
    topic, places = query.required("topic"), chosen_places(query)
    sources = await console.cluster.call(lambda client: read_sources(client, topic, places))
    view = console.record_view(request)
    await view.look_up(sources)
    shown = await view.show_all(sources, _LISTED_BYTES)
    names = sorted({name for each in sources for name, _ in each.headers})
    rows = [_Source(*pair) for pair in zip(sources, shown, strict=True)]
    table = tabulate(request, _SOURCES, rows, text=_source_text, sort="place")
    texts = [f"{partition}-{offset}" for partition, offset in places]
    return console.page(
        request,
        "resend.html",
        topic=topic,
        places=texts,
        # Links of the table name all places, which are several fields of the address.
        table=replace(table, fields={**table.fields, "at": ",".join(texts)}),
        total=sum(map(record_size, sources)),
        names=names,
        records_max=RECORDS_MAX,
    )


class MaskedCluster(NamedTuple):
    """What a change uses: a client, and the masks of the console."""

    client: Client
    masks: Masks

    def check(self, form: Fields) -> None:
        """Check that a copy does not show what a mask hides in its source.

        Raises:
            FormError: The topics have other masks.
        """
        source, target = form.required("topic"), form.required("target")
        if self.masks.of(source).rules != self.masks.of(target).rules:
            raise FormError(
                f"{source} has other masks than {target}, where its messages could be read: give "
                f"both topics the same masks first",
                "target",
            )


def preview_resend(cluster: MaskedCluster, form: Fields) -> Preview:
    """Return the copies: from where, to where, and which headers change."""
    cluster.check(form)
    client = cluster.client
    wanted = Resending.parse(form)
    target = client.describe_topics([wanted.target], may_be_new=False)[wanted.target].partitions
    sources = read_sources(client, wanted.topic, wanted.places)
    for each in sources:
        number = wanted.target_partition(each)
        if number is not None and number not in target:
            text = f"{wanted.target} has no partition {number}; it has {len(target)} partitions"
            raise FormError(text, "partition")
    rows = [_row(wanted, each) for each in sources]
    total = size(sum(map(record_size, sources)))
    is_same = wanted.topic == wanted.target
    warning = "The topic is the source itself: its readers get the messages again."
    return Preview(
        f"Send {len(sources)} messages ({total}) of {wanted.topic} to {wanted.target}?",
        "Send them",
        columns_of(
            ("From partition", "id"),
            ("Offset", "number"),
            ("To partition", "id", "that of the key"),
            ("Size", "size"),
            "Headers dropped",
            "Headers added",
        ),
        rows,
        warning if is_same else "",
    )


def _row(wanted: Resending, source: ConsumerRecord) -> tuple[object, ...]:
    before = [name for name, _ in source.headers]
    after = [name for name, _ in wanted.headers_of(source)]
    kept = [name for name in before if name not in wanted.dropped]
    return (
        source.partition,
        source.offset,
        wanted.target_partition(source),
        record_size(source),
        ", ".join(name for name in before if name in wanted.dropped) or None,
        ", ".join(after[len(kept) :]) or None,
    )


def resend(cluster: MaskedCluster, form: Fields) -> Done:
    """Write the copies, and wait until all are committed."""
    cluster.check(form)
    client = cluster.client
    wanted = Resending.parse(form)
    client.describe_topics([wanted.target], may_be_new=False)
    sources = read_sources(client, wanted.topic, wanted.places)
    with client.producer() as producer:
        deliveries = [
            producer.send(
                wanted.target,
                each.value,
                each.key,
                wanted.target_partition(each),
                headers=wanted.headers_of(each),
                timestamp_ms=each.timestamp if wanted.keeps_timestamp else None,
            )
            for each in sources
        ]
        producer.flush()
        sent, problem = [], ""
        for source, delivery in zip(sources, deliveries, strict=True):
            try:
                sent.append(delivery.result())
            except ClientError as error:
                problem = problem or f"{source.partition}:{source.offset} was not: {error}"
    if problem:
        raise FormError(
            f"{len(sent)} of {len(sources)} messages were sent; {problem}. Sending them all again "
            f"repeats those that were sent."
        )
    if len(sent) == 1:
        place = {"topic": wanted.target, "partition": sent[0].partition, "offset": sent[0].offset}
        return Done(f"sent 1 message to {wanted.target}", link("/message", **place))
    text = f"sent {len(sent)} messages to {wanted.target}"
    return Done(text, link("/messages", topic=wanted.target))


ROUTES = [
    Route("/resend", show_resend, methods=["GET"]),
    change(
        "/resend",
        resend,
        preview_resend,
        of=lambda console, client: MaskedCluster(client, console.masks),
    ),
]
