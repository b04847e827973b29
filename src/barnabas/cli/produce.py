"""`barnabas produce`: lines of standard input or of files, or JSON lines, as records of a topic."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import sys
import time
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click

from barnabas.cli.completing import complete_topics
from barnabas.cli.output import EXIT_FAILED, client_options, connected, echo_json, problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.client.shared_producer import SharedProducer

EXAMPLES = """\b
Examples:
  echo hello | barnabas produce greetings
  barnabas produce flights flights.csv -z lz4
  printf 'JFK:42\\nLGA:7\\n' | barnabas produce delays -k :
  echo '{"key": "JFK", "value": {"delay": 42}}' | barnabas produce delays --from-json
  barnabas consume delays --from-beginning -e --json | barnabas produce copy --from-json

\b
A JSON line has "value" and may have "key", "headers", "partition" and "timestamp" (ms). Strings
are sent as UTF-8, null as null, other values as JSON; "value_base64" and "key_base64" carry bytes.
"""

_CHUNK_BYTES = 1 << 18
# An open line that comes slowly is sent after this long without input, in s.
_IDLE_S = 0.05
_INT32_MAX = (1 << 31) - 1
_INT64_MAX = (1 << 63) - 1

Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int | None]


class Options(NamedTuple):
    """How lines become records."""

    separator: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    empty_is_null: bool
    from_json: bool
    partition: int | None


@click.command(epilog=EXAMPLES)
@click.argument("topic", shell_complete=complete_topics)
@click.argument("files", nargs=-1, type=click.File("rb"), metavar="[FILE...]")
@click.option("-k", "--key-separator", help="What stands between key and value in a line.")
@click.option("--key", help="The key of every record.")
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Of every record."
)
@click.option("-p", "--partition", type=click.IntRange(0), help="[default: by key, else any]")
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="How batches are compressed.",
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="Who has to have a record before it counts as written.",
)
@click.option("-Z", "--empty-is-null", is_flag=True, help="Send empty keys and values as null.")
@click.option("--from-json", is_flag=True, help="Lines are JSON objects (see below).")
@client_options
def produce(
    topic: str,
    files: Sequence[IO[bytes]],
    key_separator: str | None,
    key: str | None,
    headers: Sequence[str],
    partition: int | None,
    compression: str,
    acks: str,
    empty_is_null: bool,
    from_json: bool,
    bootstrap: str,
    properties: Sequence[str],
    as_json: bool,
) -> None:
    """Write records to TOPIC, one per line of the FILEs or of standard input.

    Ends with status 1 if a record was not delivered.
    """
    options = Options(
        key_separator.encode() if key_separator else None,
        key.encode() if key is not None else None,
        [_header(header) for header in headers],
        empty_is_null,
        from_json,
        partition,
    )
    defaults = {"compression.type": compression, "acks": acks}
    with connected(bootstrap, properties, defaults) as client:
        producer = client.producer()
        started = time.monotonic()
        error = _deliver(producer, topic, files or (sys.stdin.buffer,), options)
        _summary(producer, time.monotonic() - started, error, as_json=as_json)


def _header(text: str) -> tuple[str, bytes | None]:
    name, separator, value = text.partition("=")
    if not name:
        raise click.UsageError(f"--header {text}: write NAME=VALUE")
    return name, value.encode() if separator else None


def _deliver(
    producer: SharedProducer, topic: str, files: Sequence[IO[bytes]], options: Options
) -> str | None:
    """Send all lines and wait for them; what went wrong, in words."""
    from barnabas.client.errors import ClientError

    try:
        with _progress(files) as advance:
            for file in files:
                for lines, size in _chunks(file):
                    if lines:
                        _send(producer, topic, lines, options)
                        # Lines that come steadily and slowly leave after linger.ms too.
                        producer.poll(0)
                    else:
                        producer.flush()
                    advance(size)
        producer.close()
    except (ClientError, ValueError) as error:
        with contextlib.suppress(ClientError):
            producer.close(flush=False)
        return str(error)
    return None


def _send(producer: SharedProducer, topic: str, lines: list[bytes], options: Options) -> None:
    if options.from_json:
        for line in lines:
            if line.strip():
                record, partition = _json_record(line, options)
                producer.send_batch(topic, [record], partition)
        return
    producer.send_batch(topic, _records(lines, options), options.partition)


def _records(lines: list[bytes], options: Options) -> list[Record]:
    headers = options.headers
    separator = options.separator
    if separator is None and not options.empty_is_null:
        return [(options.key, line, headers, None) for line in lines]
    records: list[Record] = []
    for line in lines:
        key, value = options.key, line
        if separator is not None:
            before, found, after = line.partition(separator)
            if found:
                key, value = before, after
        if options.empty_is_null:
            records.append((key or None, value or None, headers, None))
        else:
            records.append((key, value, headers, None))
    return records


def _json_record(line: bytes, options: Options) -> tuple[Record, int | None]:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise ValueError(f"not a JSON line: {line[:80]!r} ({error})") from None
    if not isinstance(fields, dict) or not ("value" in fields or "value_base64" in fields):
        raise ValueError(f'a JSON line is an object with "value": {line[:80]!r}')
    try:
        headers = options.headers + _json_headers(fields.get("headers"))
        key = _json_member(fields, "key")
        value = _json_member(fields, "value")
        timestamp = _json_number(fields, "timestamp", _INT64_MAX)
        partition = _json_number(fields, "partition", _INT32_MAX)
    except ValueError as error:
        raise ValueError(f"{error}: {line[:80]!r}") from None
    record = (options.key if key is None else key, value, headers, timestamp)
    return record, partition if options.partition is None else options.partition


def _json_headers(given: Any) -> list[tuple[str, bytes | None]]:
    """Headers as an object, or as a list of pairs, in which a name may come twice."""
    pairs = list(given.items()) if isinstance(given, dict) else given or []
    if not isinstance(pairs, list) or any(
        not isinstance(pair, list | tuple) or len(pair) != 2 for pair in pairs
    ):
        raise ValueError('"headers" is neither an object nor a list of [name, value]')
    return [(str(name), _json_value(value)) for name, value in pairs]


def _json_number(fields: dict[str, Any], name: str, most: int) -> int | None:
    number = fields.get(name)
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= most:
        raise ValueError(f'"{name}" is no whole number from 0 to {most}')
    return number


def _json_member(fields: dict[str, Any], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    return _json_value(fields.get(name)) if encoded is None else _decoded(encoded)


def _decoded(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        raise ValueError(f"{text!r} is not base64") from None


def _json_value(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and list(value) == ["base64"]:
        return _decoded(value["base64"])
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _chunks(file: IO[bytes]) -> Iterator[tuple[list[bytes], int]]:
    """Lines as they come, many at a time, and their bytes; no lines when input makes a pause."""
    descriptor = file.fileno()
    rest = b""
    sent_all = True
    while True:
        if not sent_all and not select.select([descriptor], [], [], _IDLE_S)[0]:
            sent_all = True
            yield [], 0
            continue
        data = os.read(descriptor, _CHUNK_BYTES)
        if not data:
            break
        lines = (rest + data).split(b"\n")
        rest = lines.pop()
        if lines:
            sent_all = False
            yield lines, len(data)
    if rest:
        yield [rest], len(rest)


@contextlib.contextmanager
def _progress(files: Sequence[IO[bytes]]) -> Iterator[Callable[[int], None]]:
    """A bar over the bytes of the files, if people can see it; what is typed needs none."""
    if not sys.stderr.isatty() or files[0].isatty():
        yield lambda _size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    total: int | None = sum(os.fstat(file.fileno()).st_size for file in files) or None
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("produce", total=total)
        yield lambda size: progress.update(task, advance=size)


def _summary(producer: SharedProducer, seconds: float, error: str | None, *, as_json: bool) -> None:
    rate = producer.delivered / seconds if seconds > 0 else 0.0
    if as_json:
        echo_json(
            {
                "delivered": producer.delivered,
                "failed": producer.failed,
                "seconds": round(seconds, 3),
                "error": error,
            }
        )
    elif sys.stderr.isatty():
        click.echo(f"{producer.delivered} delivered in {seconds:.1f} s, {rate:,.0f}/s", err=True)
    if error is not None or producer.failed:
        if not as_json:
            lost = f"{producer.failed} record(s) not delivered: " if producer.failed else ""
            problem(lost + (error or "see above"))
        sys.exit(EXIT_FAILED)
