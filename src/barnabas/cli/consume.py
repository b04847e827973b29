"""`barnabas consume`: records of topics to standard output, as values, by template or as JSON."""

from __future__ import annotations

import json
import re
import select
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.completing import complete_groups, complete_topics
from barnabas.cli.output import (
    client_options,
    connected,
    duration_ms,
    json_bytes,
    moment_ms,
    warning,
)
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from barnabas.client.facade import Client
    from barnabas.client.record_decoding import ConsumerRecord
    from barnabas.client.record_stream import RecordStream

EXAMPLES = """\b
Examples:
  barnabas consume flights                              what comes from now on
  barnabas consume flights --from beginning -e          all there is, then end
  barnabas consume flights --from -10 -e                the last ten of each partition
  barnabas consume flights --from 2026-01-31T12:00 --key --headers
  barnabas consume flights --from 15m                   what came in the last 15 minutes
  barnabas consume flights -f '%p:%o %k -> %s\\n' -n 5
  barnabas consume flights --group report --from beginning -e    go on where the group was

\b
Templates (-f): %t topic, %p partition, %o offset, %T timestamp in ms, %k key, %K its length,
%s value, %S its length, %h headers, %% a percent sign; \\n, \\t, \\0 and \\\\ as usual.
"""

_POLL_MS = 500.0
# A broker that does not answer is spoken of after so many polls without a record.
_SILENT_POLLS = 2
# Offsets of a group are committed that often while reading, in s, and at the end.
_COMMIT_INTERVAL_S = 5.0


class Start(NamedTuple):
    """Where to start: one of them, or none for the default."""

    from_beginning: bool
    offset: str | None
    timestamp: str | None


_WORDS = {"beginning": "earliest", "earliest": "earliest", "end": "latest", "latest": "latest"}


def parse_place(text: str) -> Start:
    """Where `--from` says to start.

    Raises:
        click.UsageError: none of what it takes.
    """
    if text in _WORDS:
        return Start(from_beginning=False, offset=_WORDS[text], timestamp=None)
    if re.fullmatch(r"-?\d+", text):
        return Start(from_beginning=False, offset=text, timestamp=None)
    ago = duration_ms(text)
    moment = int(time.time() * 1000) - ago if ago is not None else moment_ms(text, "--from")
    return Start(from_beginning=False, offset=None, timestamp=str(moment))


@click.command(epilog=EXAMPLES)
@click.argument(
    "topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics
)
@click.option(
    "--from",
    "place",
    metavar="PLACE",
    help="Start at: beginning, end, an offset N, N from the end as -N, the first record as late as "
    "an ISO time, or as so long ago: 90s, 15m, 2h, 7d.",
)
@click.option("--from-beginning", is_flag=True, help="The same as --from beginning.")
@click.option("-o", "--offset", metavar="N|-N|earliest|latest", help="The same as --from.")
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
@click.option(
    "-g",
    "--group",
    shell_complete=complete_groups,
    help="Start where this group was, and commit its offsets.",
)
@click.option("-f", "--format", "template", help="A template for each record (see below).")
@click.option("-k", "--key", "with_key", is_flag=True, help="Keys before the values, and a tab.")
@click.option("--headers", "with_headers", is_flag=True, help="Headers before that, and a tab.")
@client_options
def consume(
    topics: Sequence[str],
    place: str | None,
    from_beginning: bool,
    offset: str | None,
    timestamp: str | None,
    partitions: Sequence[int],
    max_records: int | None,
    exit_at_end: bool,
    group: str | None,
    template: str | None,
    with_key: bool,
    with_headers: bool,
    bootstrap: str,
    properties: Sequence[str],
    as_json: bool,
) -> None:
    """Print records of the TOPICs, by default the values, one a line, from now on."""
    if sum((place is not None, from_beginning, offset is not None, timestamp is not None)) > 1:
        raise click.UsageError("give one of --from, --from-beginning, --offset and --timestamp")
    if (template is not None) + as_json + (with_key or with_headers) > 1:
        raise click.UsageError("give --format, --json, or --key and --headers")
    if group == "":
        raise click.UsageError("--group needs a name")
    start = Start(from_beginning, offset, timestamp) if place is None else parse_place(place)
    columns = "%h\\t" * with_headers + "%k\\t" * with_key
    show = _json_line if as_json else compile_template(template or columns + "%s\\n")
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
        show: Callable[[ConsumerRecord], bytes],
    ) -> None:
        self._client = client
        self._stream = stream
        self._group = group
        self._show = show
        # Next offset by partition, of what was printed and not yet committed.
        self._printed: dict[TopicPartition, int] = {}
        self._committed_at = time.monotonic()
        self._silent_polls = 0
        # Whether the user was told that the broker does not answer.
        self._warned = False

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
                self._check_broker()
                self._printed.update(stream.positions if stream.is_finished else {})
                self._maybe_commit()
                continue
            if self._warned:
                self._check_broker()
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

    def _check_broker(self) -> None:
        """Say when the broker is gone, and when it is back: else it looks like a quiet topic."""
        trouble = self._stream.trouble
        self._silent_polls = 0 if trouble is None else self._silent_polls + 1
        if trouble is not None and self._silent_polls == _SILENT_POLLS and not self._warned:
            self._warned = True
            warning(f"{trouble}; trying on until it answers (Ctrl-C ends)")
        elif trouble is None and self._warned:
            self._warned = False
            warning("the broker answers again")

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
        spec = moment_ms(start.timestamp, "--timestamp")
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


# How to print


def compile_template(template: str) -> Callable[[ConsumerRecord], bytes]:
    """A function that prints a record as kcat's templates say.

    Raises:
        click.UsageError: an unknown % letter.
    """
    pieces: list[bytes | Callable[[ConsumerRecord], bytes]] = []
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

    def show(record: ConsumerRecord) -> bytes:
        return b"".join(piece if isinstance(piece, bytes) else piece(record) for piece in pieces)

    return show


def _length(data: bytes | None) -> bytes:
    return b"%d" % (-1 if data is None else len(data))


def _headers(record: ConsumerRecord) -> bytes:
    return b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else value)
        for name, value in record.headers
    )


_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\0": "\0", "\\\\": "\\"}
_PIECES: dict[str, bytes | Callable[[ConsumerRecord], bytes]] = {
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


def _json_line(record: ConsumerRecord) -> bytes:
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
