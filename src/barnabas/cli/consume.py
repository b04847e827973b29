"""`barnabas consume`: records of topics to standard output, as values, by template or as JSON."""

from __future__ import annotations

import json
import re
import select
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.output import client_options, connected, json_bytes
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from barnabas.client.facade import Client
    from barnabas.client.record_decoding import ConsumedRecord
    from barnabas.client.record_stream import RecordStream

EXAMPLES = """\b
Examples:
  barnabas consume flights                              what comes from now on
  barnabas consume flights --from-beginning -e          all there is, then end
  barnabas consume flights --offset -10 -e              the last ten of each partition
  barnabas consume flights --timestamp 2026-01-31T12:00
  barnabas consume flights -f '%p:%o %k -> %s\\n' -n 5
  barnabas consume flights --group report --from-beginning -e    go on where the group was

\b
Templates (-f): %t topic, %p partition, %o offset, %T timestamp in ms, %k key, %K its length,
%s value, %S its length, %h headers, %% a percent sign; \\n, \\t, \\0 and \\\\ as usual.
"""

_POLL_MS = 500.0
# Offsets of a group are committed that often while reading, in s, and at the end.
_COMMIT_INTERVAL_S = 5.0


class Start(NamedTuple):
    """Where to start: one of them, or none for the default."""

    from_beginning: bool
    offset: str | None
    timestamp: str | None


@click.command(epilog=EXAMPLES)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--from-beginning", is_flag=True, help="Start at the first record there is.")
@click.option("-o", "--offset", metavar="N|-N|earliest|latest", help="Start there; -N: N from end.")
@click.option("-t", "--timestamp", metavar="MS|ISO", help="Start at the first record as late.")
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    help="Only these; may be given several times.",
)
@click.option("-n", "--max-records", type=click.IntRange(1), help="End after so many.")
@click.option("-e", "--exit-at-end", is_flag=True, help="End where the topics now end.")
@click.option("-g", "--group", help="Start where this group was, and commit its offsets.")
@click.option("-f", "--format", "template", help="A template for each record (see below).")
@client_options
def consume(
    topics: Sequence[str],
    from_beginning: bool,
    offset: str | None,
    timestamp: str | None,
    partitions: Sequence[int],
    max_records: int | None,
    exit_at_end: bool,
    group: str | None,
    template: str | None,
    bootstrap: str,
    properties: Sequence[str],
    as_json: bool,
) -> None:
    """Print records of the TOPICs, by default the values, one a line, from now on."""
    if sum((from_beginning, offset is not None, timestamp is not None)) > 1:
        raise click.UsageError("give one of --from-beginning, --offset and --timestamp")
    if template is not None and as_json:
        raise click.UsageError("give --format or --json, not both")
    if group == "":
        raise click.UsageError("--group needs a name")
    start = Start(from_beginning, offset, timestamp)
    show = _json_line if as_json else compile_template(template or "%s\\n")
    with connected(bootstrap, properties) as client:
        wanted = _partitions(client, topics, partitions)
        ranges = _ranges(client, wanted, start, group, exit_at_end=exit_at_end)
        with client.stream(ranges) as stream:
            _Printer(client, stream, group, show).run(max_records)


class _Printer:
    """Prints records and commits what was printed."""

    def __init__(
        self,
        client: Client,
        stream: RecordStream,
        group: str | None,
        show: Callable[[ConsumedRecord], bytes],
    ) -> None:
        self._client = client
        self._stream = stream
        self._group = group
        self._show = show
        # Next offset by partition, of what was printed and not yet committed.
        self._printed: dict[TopicPartition, int] = {}
        self._committed_at = time.monotonic()

    def run(self, max_records: int | None) -> None:
        try:
            self._print_all(max_records)
        finally:
            sys.stdout.buffer.flush()
            self._commit()

    def _print_all(self, remaining: int | None) -> None:
        stream, show, output = self._stream, self._show, sys.stdout.buffer
        while not stream.is_finished:
            records = stream.poll_records(_POLL_MS)
            if not records:
                _check_reader(output.fileno())
                self._printed.update(stream.positions if stream.is_finished else {})
                self._maybe_commit()
                continue
            if remaining is not None:
                records = records[:remaining]
                remaining -= len(records)
            output.write(b"".join(map(show, records)))
            output.flush()
            last = records[-1]
            tp = stream.partition_of(last)
            self._printed[tp] = last.offset + 1 if remaining == 0 else stream.positions[tp]
            if remaining == 0:
                return
            self._maybe_commit()

    def _maybe_commit(self) -> None:
        if time.monotonic() - self._committed_at >= _COMMIT_INTERVAL_S:
            self._commit()

    def _commit(self) -> None:
        self._committed_at = time.monotonic()
        if self._group is not None and self._printed:
            printed, self._printed = self._printed, {}
            self._client.commit_offsets(self._group, printed)


def _check_reader(descriptor: int) -> None:
    """Notice that who reads our output has gone, though there is nothing to write.

    Raises:
        BrokenPipeError: it has.
    """
    poll = select.poll()
    poll.register(descriptor, 0)
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        raise BrokenPipeError


# Where to read


def _partitions(
    client: Client, topics: Sequence[str], numbers: Sequence[int]
) -> list[TopicPartition]:
    found = client.partitions_for(topics)
    wanted = []
    for topic in topics:
        for number in numbers:
            if number not in found[topic]:
                raise click.UsageError(f"{topic} has partitions 0 to {len(found[topic]) - 1}")
        wanted += [TopicPartition(topic, number) for number in numbers or found[topic]]
    return wanted


def _ranges(
    client: Client,
    wanted: Sequence[TopicPartition],
    start: Start,
    group: str | None,
    *,
    exit_at_end: bool,
) -> dict[TopicPartition, tuple[int, int | None]]:
    ends = {tp: found.offset for tp, found in client.list_offsets(_all(wanted, "latest")).items()}
    starts = dict(_starts(client, wanted, start, ends))
    if group is not None:
        committed = client.committed(group, wanted)
        starts.update({tp: found.offset for tp, found in committed.items()})
    return {tp: (starts[tp], max(starts[tp], ends[tp]) if exit_at_end else None) for tp in wanted}


def _starts(
    client: Client,
    wanted: Sequence[TopicPartition],
    start: Start,
    ends: dict[TopicPartition, int],
) -> Iterable[tuple[TopicPartition, int]]:
    spec: str | int
    offset = start.offset
    if offset is not None and re.fullmatch(r"-?\d+", offset):
        number = int(offset)
        first = client.list_offsets(_all(wanted, "earliest"))
        if number >= 0 and not offset.startswith("-"):
            return [(tp, number) for tp in wanted]
        return [(tp, max(first[tp].offset, ends[tp] + number)) for tp in wanted]
    if start.timestamp is not None:
        spec = _milliseconds(start.timestamp)
    elif start.from_beginning or offset == "earliest":
        spec = "earliest"
    elif offset in (None, "latest"):
        return [(tp, ends[tp]) for tp in wanted]
    else:
        raise click.UsageError(f"--offset {offset}: write a number, earliest or latest")
    found = client.list_offsets(_all(wanted, spec))
    return [(tp, found[tp].offset if found[tp].offset >= 0 else ends[tp]) for tp in wanted]


def _all(wanted: Sequence[TopicPartition], spec: str | int) -> dict[TopicPartition, str | int]:
    return dict.fromkeys(wanted, spec)


def _milliseconds(text: str) -> int:
    if text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        hint = "write milliseconds or an ISO time such as 2026-01-31T12:00"
        raise click.UsageError(f"--timestamp {text}: {hint}") from None
    return int(moment.timestamp() * 1000)


# How to print


def compile_template(template: str) -> Callable[[ConsumedRecord], bytes]:
    """A function that prints a record as kcat's templates say.

    Raises:
        click.UsageError: an unknown % letter.
    """
    pieces: list[bytes | Callable[[ConsumedRecord], bytes]] = []
    for token in re.findall(r"%.|\\.|[^%\\]+|[%\\]", template, re.DOTALL):
        if token.startswith("%"):
            piece = _PIECES.get(token)
            if piece is None:
                raise click.UsageError(f"--format: {token} is none of {' '.join(_PIECES)}")
            pieces.append(piece)
        else:
            pieces.append(_ESCAPES.get(token, token).encode())
    if len(pieces) == 2 and pieces[0] is _PIECES["%s"] and pieces[1] == b"\n":
        return lambda record: (record.value or b"") + b"\n"

    def show(record: ConsumedRecord) -> bytes:
        return b"".join(piece if isinstance(piece, bytes) else piece(record) for piece in pieces)

    return show


def _length(data: bytes | None) -> bytes:
    return b"%d" % (-1 if data is None else len(data))


def _headers(record: ConsumedRecord) -> bytes:
    return b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else value)
        for name, value in record.headers
    )


_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\0": "\0", "\\\\": "\\"}
_PIECES: dict[str, bytes | Callable[[ConsumedRecord], bytes]] = {
    "%t": lambda record: record.topic.encode(),
    "%p": lambda record: b"%d" % record.partition,
    "%o": lambda record: b"%d" % record.offset,
    "%T": lambda record: b"%d" % record.timestamp,
    "%k": lambda record: record.key or b"",
    "%K": lambda record: _length(record.key),
    "%s": lambda record: record.value or b"",
    "%S": lambda record: _length(record.value),
    "%h": _headers,
    "%%": b"%",
}


def _json_line(record: ConsumedRecord) -> bytes:
    fields: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **json_bytes("key", record.key),
        **json_bytes("value", record.value),
        "headers": [[name, _json_header(value)] for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _json_header(value: bytes | None) -> object:
    found = json_bytes("value", value)
    return found["value"] if "value" in found else {"base64": found["value_base64"]}
