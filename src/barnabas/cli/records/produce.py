"""The command `barnabas produce`: its options and its result.

Its arguments are TOPIC [FILE...], or -t TOPIC [FILE...] as in kcat.
"""

from __future__ import annotations

import os
import sys
import time
from functools import wraps
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from barnabas.cli.common.named_topics import complete_topics
from barnabas.cli.common.output import (
    EXIT_FAILED,
    PRODUCER_FLAGS,
    ClientOptions,
    client_options,
    connected,
    echo_json,
    moment_ms,
    problem,
)
from barnabas.cli.common.printable import echo
from barnabas.cli.common.terminal import termination_as_interrupt
from barnabas.cli.records.delivery import CreationNotice, Delivery, Limits, Options, input_chunks
from barnabas.cli.records.formats import progress, summary_line
from barnabas.cli.records.schema_formats import FormatOptions, format_options
from barnabas.cli.records.templates import unescape_separator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.cli.records.formats import Format
    from barnabas.client.producer.producer import SharedProducer

EXAMPLES = """\b
Examples:
  echo hello | barnabas produce greetings
  barnabas produce flights flights.csv -z lz4
  printf 'JFK:42\\nLGA:7\\n' | barnabas produce delays -K :
  echo '{"key": "JFK", "value": {"delay": 42}}' | barnabas produce delays --from-json
  barnabas consume delays --from beginning -e --json | barnabas produce copy --from-json
  barnabas produce pictures --whole-files departures.png arrivals.png
  printf 'JFK 42\\n' | barnabas produce delays -K ' ' -s value=long
  echo '{"delay": 42}' | barnabas produce delays --value-format avro --registry http://host:8081
  barnabas produce events events.json --value-format protobuf --value-schema events.proto \\
    --value-message Landing --subject-name-strategy topic-record
  barnabas produce flights flights.csv --rate 1000
  barnabas produce -t flights < flights.csv

\b
A JSON line has "value", and optionally "key", "headers", "partition" and "timestamp" (ms). Strings
are sent as UTF-8, null as null, other values as JSON. "value_base64" and "key_base64" contain
bytes. Lines of kcat -J, with "payload" and "ts", are accepted too.

\b
Formats (-s): string, json, short, integer, long, float, double, boolean, uuid, hex, base64: the
text of a line, or the value in a JSON line, is encoded in this format. key=FORMAT and value=FORMAT
apply to keys or values only. With a schema registry: avro, json-schema, protobuf. They encode JSON
by the schema in --value-schema, which is registered, or else by the latest schema of the subject,
which --subject-name-strategy names.

Ctrl-C ends the reading, and the command waits for the acknowledgement of sent records. A second
Ctrl-C ends the command.
"""


F = TypeVar("F", bound="Callable[..., Any]")


def _complete(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[str] | list[CompletionItem]:
    """Complete a topic as the first argument, and files after it."""
    if ctx.params.get("named_topic") is None and not ctx.params.get("words"):
        return complete_topics(ctx, param, incomplete)
    return [CompletionItem(incomplete, type="file")]


def topic_and_files(command: F) -> F:
    """Decorate a command that takes `topic`, a name, and `files`, opened for reading bytes.

    Without -t, the first argument is the topic. With -t, all arguments are files.
    """

    @wraps(command)
    def with_both(*, named_topic: str | None, words: Sequence[str], **given: Any) -> Any:
        topic, files = named_topic, list(words)
        if topic is None:
            if not files:
                raise click.UsageError("Missing argument 'TOPIC'.")
            topic = files.pop(0)
        context = click.get_current_context()
        kind = click.File("rb")
        opened = tuple(kind.convert(name, None, context) for name in files)
        return command(topic=topic, files=opened, **given)

    argument = click.argument(
        "words", nargs=-1, metavar="[TOPIC] [FILE...]", shell_complete=_complete
    )
    option = click.option(
        "-t",
        "--topic",
        "named_topic",
        metavar="TOPIC",
        help="The topic; then all arguments are files.",
        shell_complete=complete_topics,
    )
    return cast("F", argument(option(with_both)))


@click.command(epilog=EXAMPLES)
@topic_and_files
@click.option(
    "-K",
    "--key-separator",
    callback=unescape_separator,
    help="Separator of key and value in a line.",
)
@click.option("-k", "--key", help="Key of records without a key.")
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="A header of every record. May be repeated.",
)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(0),
    help="Partition of every record.  [default: chosen by the key]",
)
@click.option(
    "--timestamp", metavar="MS|ISO", help="Timestamp of every record.  [default: current time]"
)
@click.option(
    "-D", "--delimiter", callback=unescape_separator, help="Separator of records.  [default: \\n]"
)
@click.option("-W", "--whole-files", is_flag=True, help="Send each file as one record.")
@click.option("-n", "-c", "--max-records", type=click.IntRange(1), help="End after N records.")
@click.option("--rate", type=click.IntRange(1), help="Send at most N records per second.")
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="Compression of batches.",
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="Replicas that must acknowledge a record.",
)
@click.option("-Z", "--empty-is-null", is_flag=True, help="Send empty keys and values as null.")
@click.option("--from-json", is_flag=True, help="Read lines as JSON objects (see below).")
@format_options(is_written=True)
@click.option("-T", "--tee", is_flag=True, help="Print sent records, too.")
@click.option("-q", "--quiet", is_flag=True, help="Do not show progress on the terminal.")
@client_options
def produce(
    topic: str,
    files: Sequence[IO[bytes]],
    key_separator: bytes | None,
    key: str | None,
    headers: Sequence[str],
    partition: int | None,
    timestamp: str | None,
    delimiter: bytes | None,
    whole_files: bool,
    max_records: int | None,
    rate: int | None,
    compression: str,
    acks: str,
    empty_is_null: bool,
    from_json: bool,
    formats: FormatOptions,
    tee: bool,
    quiet: bool,
    options: ClientOptions,
) -> None:
    """Write records to TOPIC, one per line of the FILEs or of standard input.

    Exit status 1: a record was not delivered.
    """
    if from_json and (key_separator is not None or whole_files):
        raise click.UsageError("--from-json goes with neither --key-separator nor --whole-files")
    if tee and options.as_json:
        raise click.UsageError("--tee and --json both write to standard output: give only one")
    end = delimiter or b"\n"
    how_key, how_value = formats.parse(options.properties, topic)
    how = Options(
        separator=key_separator,
        key=_fixed_key(key, how_key),
        headers=tuple(_header(header) for header in headers),
        partition=partition,
        timestamp=None if timestamp is None else moment_ms(timestamp, "--timestamp"),
        empty_is_null=empty_is_null,
        from_json=from_json,
        key_format=how_key,
        value_format=how_value,
    )
    limits = Limits(rate, max_records, end if tee else None)
    inputs = files or (sys.stdin.buffer,)
    visible = not quiet and not tee and not inputs[0].isatty()
    defaults = {"compression.type": compression, "acks": acks}
    with (
        termination_as_interrupt(),
        connected(options.with_flags(PRODUCER_FLAGS), defaults) as client,
    ):
        producer = client.producer()
        started = time.monotonic()
        with progress(visible=visible, size=_size(inputs)) as shown:
            notice = CreationNotice(client, topic)
            delivery = Delivery(producer, topic, how, limits, shown, notice)
            delivery.run(input_chunks(inputs, end, whole_files=whole_files))
        seconds = time.monotonic() - started
        _report(producer, delivery, seconds, as_json=options.as_json)
        if visible and not options.as_json and sys.stderr.isatty():
            echo(summary_line(producer.delivered, shown.size, seconds), err=True)


def _fixed_key(key: str | None, how: Format | None) -> bytes | None:
    if key is None or how is None:
        return None if key is None else key.encode()
    try:
        return how.write(key)
    except (TypeError, ValueError) as error:
        raise click.UsageError(f"--key {key}: {error}") from None


def _header(text: str) -> tuple[str, bytes | None]:
    name, separator, value = text.partition("=")
    if not name:
        raise click.UsageError(f"--header {text}: write NAME=VALUE")
    return name, value.encode() if separator else None


def _size(files: Sequence[IO[bytes]]) -> int | None:
    return sum(os.fstat(file.fileno()).st_size for file in files) or None


def _report(producer: SharedProducer, delivery: Delivery, seconds: float, *, as_json: bool) -> None:
    """Print the result; exit with an error status if a record was not delivered."""
    error = delivery.error
    if as_json:
        echo_json(
            {
                "delivered": producer.delivered,
                "failed": producer.failed,
                "seconds": round(seconds, 3),
                "error": error,
            }
        )
    if error is not None or producer.failed:
        if not as_json:
            lost = f"{producer.failed} record(s) not delivered: " if producer.failed else ""
            problem(lost + (error or "see above"))
        sys.exit(EXIT_FAILED)
    if delivery.interrupt is not None:
        raise delivery.interrupt
