"""The command `barnabas consume`: its options, and the source and printer that it creates."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from barnabas.cli.common.named_topics import complete_groups, topic_arguments
from barnabas.cli.common.output import (
    ClientOptions,
    client_config,
    client_options_with,
    connected,
    fail,
    json_option,
    option_record,
    report_long_call,
)
from barnabas.cli.common.printable import echo
from barnabas.cli.common.terminal import termination_as_interrupt
from barnabas.cli.records.formats import progress
from barnabas.cli.records.printer import Printer, RecordFilter, json_lines, kcat_lines
from barnabas.cli.records.schema_formats import FormatOptions, format_options
from barnabas.cli.records.source import (
    BEGINNING,
    END,
    ErrorPolicy,
    Place,
    RangeSource,
    check_end,
    missing_leaders,
    parse_place,
    resolve,
)
from barnabas.cli.records.templates import Reading, compile_template, unescape_option, value_lines
from barnabas.client.errors import (
    CorruptRecordsError,
    RecordDeserializationError,
    UnknownTopicError,
)
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from barnabas.cli.records.formats import Format, Progress
    from barnabas.cli.records.source import Source
    from barnabas.cli.records.templates import Render
    from barnabas.client.facade import Client

# Default of max.poll.records.
_SHARE_RECORDS_MAX = 500

EXAMPLES = """\b
Examples:
  barnabas consume flights                              new records only
  barnabas consume flights --from beginning -e          all records, then end
  barnabas consume flights --from -10 -e                the last ten of each partition
  barnabas consume flights --from 2026-01-31T12:00 --to 2026-01-31T13:00
  barnabas consume flights --from 15m --key --headers   the last 15 minutes
  barnabas consume flights -f '%p:%o %k -> %s\\n' -n 5
  barnabas consume flights --from beginning -e --grep-key '^JFK$' -s value=json --json
  barnabas consume flights --group report --from beginning     share with other members
  barnabas consume flights --share checks --on-error skip      acquire and accept records
  barnabas consume '^flights-.*' -q > flights.txt
  barnabas consume -t flights -o beginning -e -s value=json --on-error skip
  barnabas consume flights --value-format avro --registry http://host:8081

\b
Places (--from, --to): beginning, end, an offset, -N for N records before the end, an ISO time, @MS
(ms since 1970), or a duration before the current time: 90s, 15m, 2h, 7d.

\b
Templates (-f): %t topic, %p partition, %o offset, %T timestamp in ms, %I as ISO time (UTC), %k key,
%K its length, %s value, %S its length, %R that in four bytes, %h headers, %% a percent sign; \\n,
\\t, \\r, \\0, \\\\ and \\x1f as usual.

\b
Formats (-s): string, json, short, integer, long, float, double, boolean, uuid, hex, base64, or a
layout as in kcat, such as '>iq' for integers of four and eight bytes. key=FORMAT and value=FORMAT
apply to keys or values only. With a schema registry: avro, json-schema, protobuf. They print JSON;
--value-schema converts values to that schema.
"""


class _Choices(NamedTuple):
    """The records to read, and how they are printed."""

    topics: Sequence[str]
    numbers: Sequence[int]
    start: Place
    end: Place | None
    group: str | None
    exit_at_end: bool
    # Configuration for the consumer of a group member.
    config: Mapping[str, Any]
    errors: ErrorPolicy
    render_of: Callable[[TopicPartition], Render]
    wanted: RecordFilter
    # Whether progress and notices are hidden.
    quiet: bool

    def printer(self, source: Source, shown: Progress, names: Sequence[str]) -> Printer:
        """Return a printer of the records of a source, which reads the named topics."""
        waiting = None
        if not self.quiet and sys.stderr.isatty():
            waiting = f"waiting for new records of {', '.join(names)}; Ctrl-C ends"
            if self.start is END and self.group is None:
                waiting += ", and --from beginning shows the existing records"
        return Printer(source, self.render_of, self.wanted, shown, self.errors, waiting)


class _OutputOptions(NamedTuple):
    """The options for the output."""

    template: str | None
    with_headers: bool
    with_key: bool
    with_offset: bool
    delimiter: bytes | None
    key_delimiter: bytes | None
    show_null: bool
    # Whether records are printed as kcat -J prints them.
    as_envelope: bool

    def render_of(
        self, formats: tuple[Format | None, Format | None], *, as_json: bool
    ) -> Callable[[TopicPartition], Render]:
        """Return a function that creates the renderer of a partition.

        Args:
            formats: The formats of key and value; None for raw bytes.
            as_json: Whether records are printed as JSON lines.

        Raises:
            click.UsageError: Options contradict each other, or the template is invalid.
        """
        reading = Reading(*formats, b"NULL" if self.show_null else b"")
        columns = self.with_headers or self.with_key or self.with_offset
        columns = columns or self.key_delimiter is not None
        with_json = as_json or self.as_envelope
        if (self.template is not None) + as_json + self.as_envelope + columns > 1:
            raise click.UsageError("give --format, --json, -J, or --key, --headers and --offsets")
        if self.delimiter is not None and (with_json or self.template is not None):
            raise click.UsageError("--delimiter goes with neither --format nor --json")
        if with_json:
            return json_lines(reading) if as_json else kcat_lines(reading)
        end = b"\n" if self.delimiter is None else self.delimiter
        if self.template is None and not columns and reading.value is None:
            render = value_lines(reading.null, end)
            return lambda _tp: render
        return compile_template(self.template or self._columns(end), reading)

    def _columns(self, end: bytes) -> str:
        between = _literal(b"\t" if self.key_delimiter is None else self.key_delimiter)
        shown = [("%h", self.with_headers), ("%o", self.with_offset)]
        shown.append(("%k", self.with_key or self.key_delimiter is not None))
        return "".join(letter + between for letter, on in shown if on) + "%s" + _literal(end)


def _literal(data: bytes) -> str:
    """Return a template that prints these bytes."""
    return "".join(f"\\x{byte:02x}" for byte in data)


_output_options = option_record(
    "look",
    _OutputOptions,
    click.option("-f", "--format", "template", help="A template for each record (see below)."),
    click.option(
        "-k", "--key", "with_key", is_flag=True, help="Print the key and a tab before the value."
    ),
    click.option(
        "--headers", "with_headers", is_flag=True, help="Print the headers and a tab before that."
    ),
    click.option(
        "-O", "--offsets", "with_offset", is_flag=True, help="Print the offset and a tab, too."
    ),
    click.option(
        "-K",
        "--key-delimiter",
        callback=unescape_option,
        help="Print keys, with this text instead of the tab.",
    ),
    click.option(
        "-D",
        "--delimiter",
        callback=unescape_option,
        help="Print this after each record.  [default: \\n]",
    ),
    click.option("-Z", "--show-null", is_flag=True, help="Print NULL for null keys and values."),
    click.option(
        "-J",
        "--kcat-json",
        "as_envelope",
        is_flag=True,
        help="Print JSON lines as kcat -J, with payload and ts.",
    ),
)


@click.command(epilog=EXAMPLES)
@topic_arguments("topics")
@click.option("--from", "place", metavar="PLACE", help="Start at this place (see below).")
@click.option("--from-beginning", is_flag=True, help="The same as --from beginning.")
@click.option("-o", "--offset", metavar="PLACE", help="The same as --from.")
@click.option(
    "--timestamp", metavar="MS|ISO", help="Start at the first record at or after this time."
)
@click.option("--to", metavar="PLACE", help="Stop before this place.")
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    help="Read only this partition. May be repeated.",
)
@click.option("-n", "-c", "--max-records", type=click.IntRange(1), help="End after N records.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the current end of the topics.")
@click.option(
    "-g",
    "--group",
    shell_complete=complete_groups,
    help="Read as a member of this group; with -p, use its offsets without joining it.",
)
@click.option(
    "--share",
    metavar="GROUP",
    shell_complete=complete_groups,
    help="Acquire records as a member of this share group, and accept those that are printed.",
)
@_output_options
@format_options(is_written=False)
@click.option("--grep", metavar="REGEX", help="Print only records whose values match.")
@click.option("--grep-key", metavar="REGEX", help="Print only records whose keys match.")
@click.option(
    "--on-error",
    type=click.Choice(["fail", "skip"]),
    default="fail",
    show_default=True,
    help="On a corrupt batch, or a record that -s cannot decode: end, or warn and continue; "
    "with --share, skipped records are rejected.",
)
@click.option("-q", "--quiet", is_flag=True, help="Do not show progress on the terminal.")
@client_options_with(
    json_option("Print JSON lines, as produce --from-json reads them.", short=False)
)
def consume(
    topics: Sequence[str],
    place: str | None,
    from_beginning: bool,
    offset: str | None,
    timestamp: str | None,
    to: str | None,
    partitions: Sequence[int],
    max_records: int | None,
    exit_at_end: bool,
    group: str | None,
    share: str | None,
    look: _OutputOptions,
    formats: FormatOptions,
    grep: str | None,
    grep_key: str | None,
    on_error: str,
    quiet: bool,
    options: ClientOptions,
) -> None:
    """Print records of the TOPICs; by default, the values of new records, one per line.

    A TOPIC that begins with ^ is a regular expression, which selects all matching topics.
    """
    start = _start(place, from_beginning=from_beginning, offset=offset, timestamp=timestamp)
    end = None if to is None else check_end(parse_place(to, "--to"))
    _check_groups(group, share)
    render_of = look.render_of(formats.parse(options.properties), as_json=options.as_json)
    wanted = RecordFilter(max_records, _expression(grep_key), _expression(grep))
    is_member = group is not None and not partitions
    if is_member and end is not None:
        raise click.UsageError("--to with --group requires --partition")
    config = client_config(options)
    errors = ErrorPolicy(skip=on_error == "skip")
    choices = _Choices(
        topics=topics,
        numbers=partitions,
        start=start,
        end=end,
        group=share or group,
        exit_at_end=exit_at_end,
        config=config,
        errors=errors,
        render_of=render_of,
        wanted=wanted,
        quiet=quiet,
    )
    if share is not None:
        _check_share(choices)
        run = _run_share
    else:
        run = _run_member if is_member else _run
    with termination_as_interrupt(), connected(options) as client:
        try:
            run(client, choices)
        except (CorruptRecordsError, RecordDeserializationError) as error:
            fail(f"{error.finding}. `--on-error skip` skips such records")


def _check_groups(group: str | None, share: str | None) -> None:
    """Check the names of the groups.

    Raises:
        click.UsageError: A name is empty, or both groups are given.
    """
    for option, name in (("--group", group), ("--share", share)):
        if name == "":
            raise click.UsageError(f"{option} needs a name")
    if group is not None and share is not None:
        raise click.UsageError("give either --group or --share")


def _check_share(choices: _Choices) -> None:
    """Refuse options that a share group does not support.

    Raises:
        click.UsageError: The options select places or partitions.
    """
    if choices.numbers or choices.start is not END or choices.end or choices.exit_at_end:
        raise click.UsageError(
            "--share goes with none of --from, --to, --partition and --exit-at-end: the group's "
            "config share.auto.offset.reset decides where a new group starts"
        )


def _start(
    place: str | None, *, from_beginning: bool, offset: str | None, timestamp: str | None
) -> Place:
    given = [("--from", place), ("--offset", offset), ("--timestamp", timestamp)]
    named = [(option, text) for option, text in given if text is not None]
    if len(named) + from_beginning > 1:
        raise click.UsageError("give one of --from, --from-beginning, --offset and --timestamp")
    if from_beginning:
        return BEGINNING
    if not named:
        return END
    [(option, text)] = named
    return parse_place(f"@{text}" if option == "--timestamp" else text, option)


def _expression(text: str | None) -> re.Pattern[bytes] | None:
    if text is None:
        return None
    try:
        return re.compile(text.encode())
    except re.error as error:
        raise click.UsageError(f"{text!r} is not a regular expression: {error}") from None


def _run(client: Client, choices: _Choices) -> None:
    names = _topics(client, choices.topics)
    _explain_long_wait(client, names)
    ranges = _ranges(client, _partitions(client, names, choices.numbers), choices)
    ends = [end - start for start, end in ranges.values() if end is not None]
    expected = sum(ends) if len(ends) == len(ranges) else None
    if choices.wanted.records_max is not None:
        expected = min(choices.wanted.records_max, expected or choices.wanted.records_max)
    with client.stream(ranges) as stream, _shown(expected, quiet=choices.quiet) as shown:
        source = RangeSource(client, stream, choices.group, choices.errors)
        choices.printer(source, shown, names).run()


def _run_member(client: Client, choices: _Choices) -> None:
    """Read as a member of the group."""
    from barnabas.cli.records.group_sources import GroupSource
    from barnabas.client.consumer.consumer import Consumer

    reset = "latest" if choices.start is END else "earliest"
    config: dict[str, Any] = {
        **choices.config,
        "group_id": choices.group,
        "auto_offset_reset": reset,
        "enable_auto_commit": False,
    }
    names = _topics(client, choices.topics)
    _explain_long_wait(client, names)
    client.partitions_for(names)
    with (
        Consumer(**config) as consumer,
        _shown(choices.wanted.records_max, quiet=choices.quiet) as shown,
    ):
        source = GroupSource(
            client, consumer, choices.start, exit_at_end=choices.exit_at_end, errors=choices.errors
        )
        printer = choices.printer(source, shown, names)
        source.on_revoke = printer.commit
        source.subscribe(names)
        printer.run()


def _run_share(client: Client, choices: _Choices) -> None:
    """Acquire records as a member of the share group."""
    from barnabas.cli.records.group_sources import ShareSource
    from barnabas.client.share.share_consumer import ShareConsumer

    config: dict[str, Any] = {
        **choices.config,
        "group_id": choices.group,
        "share_acknowledgement_mode": "explicit",
    }
    if choices.wanted.records_max is not None:
        # Records beyond the limit would be released, and delivered to another member again.
        config["max_poll_records"] = min(choices.wanted.records_max, _SHARE_RECORDS_MAX)
    names = _topics(client, choices.topics)
    _explain_long_wait(client, names)
    client.partitions_for(names)
    with (
        ShareConsumer(*names, **config) as consumer,
        _shown(choices.wanted.records_max, quiet=choices.quiet) as shown,
    ):
        source = ShareSource(consumer, choices.errors)
        choices.printer(source, shown, names).run()


@contextmanager
def _shown(expected: int | None, *, quiet: bool) -> Iterator[Progress]:
    """Show progress unless records are printed on a terminal, then print a summary."""
    visible = not quiet and not sys.stdout.isatty()
    with progress(visible=visible, records=expected) as shown:
        yield shown
    if visible and sys.stderr.isatty():
        echo(str(shown), err=True)


def _topics(client: Client, given: Sequence[str]) -> list[str]:
    """Return the given names and the topics that match expressions, without duplicates."""
    found: dict[str, None] = {}
    for name in given:
        if not name.startswith("^"):
            found[name] = None
            continue
        try:
            matching = [topic for topic in client.topics() if re.search(name, topic)]
        except re.error as error:
            raise click.UsageError(f"{name!r} is not a regular expression: {error}") from None
        if not matching:
            raise click.UsageError(f"no topic matches {name}")
        found.update(dict.fromkeys(matching))
    return list(found)


def _explain_long_wait(client: Client, names: Sequence[str]) -> None:
    """Arrange that a wait for the topics says what is missing: a topic or a leader."""
    try:
        topics = client.describe_topics(names, may_be_new=False)
        every = [
            TopicPartition(name, number) for name in names for number in topics[name].partitions
        ]
        missing = missing_leaders(topics, every)
    except UnknownTopicError as error:
        missing = f"the topic {error.subject} does not exist yet; looking again"
    if missing is not None:
        report_long_call(client, f"waiting: {missing}")


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
    client: Client, wanted: Sequence[TopicPartition], choices: _Choices
) -> dict[TopicPartition, tuple[int, int | None]]:
    """Return the first offset and the end of each partition; None for no end."""
    latest = client.list_offsets(dict.fromkeys(wanted, "latest"))
    ends = {tp: found.offset for tp, found in latest.items()}
    starts = resolve(client, wanted, choices.start, ends)
    if choices.group is not None:
        committed = client.committed(choices.group, wanted)
        starts.update({tp: found.offset for tp, found in committed.items()})
    last: dict[TopicPartition, int] = dict(ends) if choices.exit_at_end else {}
    if choices.end is not None:
        stops = resolve(client, wanted, choices.end, ends)
        last = {tp: min(stop, last.get(tp, stop)) for tp, stop in stops.items()}
    return {tp: (starts[tp], max(starts[tp], last[tp]) if last else None) for tp in wanted}
