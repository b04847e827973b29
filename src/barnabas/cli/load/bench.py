"""The commands of `barnabas bench`."""

from __future__ import annotations

import sys
import uuid
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common.named_topics import topic_arguments
from barnabas.cli.common.output import (
    EXIT_FAILED,
    PRODUCER_FLAGS,
    ClientOptions,
    client_config,
    client_options,
    connected,
    echo_json,
    fail,
    option_group,
    warning,
)
from barnabas.cli.common.printable import echo
from barnabas.cli.common.tables import header_option
from barnabas.cli.common.terminal import termination_as_interrupt
from barnabas.cli.common.units import NumberRange, Seconds, Size
from barnabas.cli.load.measurement import Load, Measurement, displayed, echo_result
from barnabas.client.errors import AdminResultsError, ClientError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from barnabas.client.facade import Client

EXAMPLES = """\b
Examples:
  barnabas bench produce --seconds 10                     as fast as possible
  barnabas bench produce --rate 5000 --record-size 1000   at a steady rate
  barnabas bench consume flights
  barnabas bench latency --rate 200 -n 5000
  barnabas bench produce -t load-test -n 1000000 --json

\b
Without TOPIC, a temporary topic is created and deleted afterwards. With --rate, a latency counts
from the due time of the record, even if the record was sent later, so the percentiles show stalls
of a broker. Without --rate, it counts from the send, and most of it is time in the producer's
buffer. The generator is one Python process, which is the limit on fast machines.
"""
_DEFAULT_SECONDS = 10.0
_LATENCY_RATE = 100.0


@click.group(epilog=EXAMPLES)
def bench() -> None:
    """Generate load, and measure throughput and latency percentiles."""


# The options that end a run.
_bounds = option_group(
    click.option("-n", "--records", type=click.IntRange(1), help="End after N records."),
    click.option(
        "--seconds",
        type=NumberRange(0, min_open=True),
        help="End after N seconds.  [default: 10, unless --records is given]",
    ),
)


# The options of a load that writes.
_load_options = option_group(
    _bounds,
    click.option(
        "--rate", type=NumberRange(0, min_open=True), help="Records per second."
    ),
    click.option(
        "-s", "--record-size", type=Size(1, 10_000_000), default=100,
        show_default=True, help="Size of each value in bytes.",
    ),
    click.option(
        "--keys", type=click.IntRange(0, 1_000_000), default=0, show_default=True,
        help="Number of different keys; 0 for no keys.",
    ),
    click.option(
        "-p", "--partitions", type=click.IntRange(1), default=1, show_default=True,
        help="Of a topic that is made.",
    ),
    click.option(
        "-r", "--replication-factor", type=click.IntRange(1), default=None,
        help="Of a topic that is made.  [default: the broker's]",
    ),
    click.option(
        "-z", "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
        default="none", show_default=True, help="Compression of batches.",
    ),
    click.option(
        "--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True,
        help="Replicas that must acknowledge: all in sync, the leader, or none.",
    ),
)  # fmt: skip


_quiet = click.option(
    "-q", "--quiet", is_flag=True, help="Do not show the live display on the terminal."
)


def _load(given: Mapping[str, Any]) -> Load:
    records, seconds = given["records"], given["seconds"]
    if records is None and seconds is None:
        seconds = _DEFAULT_SECONDS
    return Load(records, seconds, given["rate"], given["record_size"], given["keys"])


def _one_topic(topics: Sequence[str]) -> str | None:
    if len(topics) > 1:
        raise click.UsageError("give only one topic")
    return topics[0] if topics else None


@contextmanager
def _topic(client: Client, name: str | None, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the named topic, created if it is missing.

    Without a name, create a topic and delete it at the end.
    """
    from barnabas.client.admin.topics import NewTopic

    used = name or f"barnabas-bench-{uuid.uuid4().hex[:8]}"
    if name is None or not _exists(client, name):
        new = NewTopic(used, given["partitions"], given["replication_factor"] or -1, {})
        client.create_topics([new])
        if name is not None:
            echo(f"created topic {name}", err=True)
    try:
        yield used
    finally:
        if name is None:
            _delete(client, used)


def _exists(client: Client, name: str) -> bool:
    try:
        client.admin.describe_topics([name])
    except AdminResultsError as error:
        if error.results[name].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        raise
    return True


def _delete(client: Client, topic: str) -> None:
    try:
        client.delete_topics([topic])
    except (AdminResultsError, ClientError) as error:
        warning(f"the topic {topic} could not be deleted: {error}")


@bench.command(
    "produce",
    epilog="\b\nExamples:\n  barnabas bench produce --seconds 10\n"
    "  barnabas bench produce -t load-test --rate 5000 -s 1000 --acks 1 -z lz4\n"
    "  barnabas bench produce -n 1000000 --partitions 6 --keys 1000 --json\n",
)
@topic_arguments("topics", "TOPIC", required=False)
@_load_options
@_quiet
@header_option
@client_options
def bench_produce(topics: Sequence[str], quiet: bool, options: ClientOptions, **given: Any) -> None:
    """Write records, and measure the time until they are acknowledged."""
    from barnabas.cli.load.bench_runs import run_produce

    load, name = _load(given), _one_topic(topics)
    defaults = {"compression.type": given["compression"], "acks": given["acks"]}
    with (
        termination_as_interrupt(),
        connected(options.with_flags(PRODUCER_FLAGS), defaults) as client,
        _topic(client, name, given) as topic,
    ):
        run = partial(run_produce, client.producer(), topic, load)
        _measure(("produce", f"produce to {topic}", topic), run, load, quiet, options.as_json)


@bench.command(
    "consume",
    epilog="\b\nExamples:\n  barnabas bench consume flights\n"
    "  barnabas bench consume flights -n 1000000 --json\n\n"
    "Without --records and --seconds, it stops at the current end of the topic. A "
    "latency is the time from one fetched record set to the next.\n",
)
@topic_arguments("topics", "TOPIC")
@click.option("-n", "--records", type=click.IntRange(1), help="End after N records.")
@click.option("--seconds", type=Seconds(0, min_open=True), help="End after so long.")
@click.option(
    "--idle", type=Seconds(0, min_open=True), default=10.0, show_default=True,
    help="End after N seconds without a record.",
)  # fmt: skip
@_quiet
@header_option
@client_options
def bench_consume(
    topics: Sequence[str],
    records: int | None,
    seconds: float | None,
    idle: float,
    quiet: bool,
    options: ClientOptions,
) -> None:
    """Read a topic from its beginning, decode its records, and measure the throughput."""
    from barnabas.cli.load.bench_runs import run_consume

    topic = _one_topic(topics)
    assert topic is not None, "required"
    with termination_as_interrupt(), connected(options) as client:
        run = partial(
            run_consume, client, topic, records_max=records, seconds_max=seconds, idle_s=idle
        )
        found = _measure(("consume", f"consume {topic}", topic), run, None, quiet, options.as_json)
    if records is not None and found.records < records:
        fail(f"only {found.records} of {records} records arrived")


@bench.command(
    "latency",
    epilog="\b\nExamples:\n  barnabas bench latency -n 5000 --rate 200\n"
    "  barnabas bench latency -t load-test --seconds 30 --acks all --json\n\n"
    "The latency of a record is the time from its due time until it arrives at a "
    "consumer in the same process. With --one-by-one, each record is sent after the "
    "previous one has arrived.\n",
)
@topic_arguments("topics", "TOPIC", required=False)
@_load_options
@click.option(
    "--one-by-one",
    is_flag=True,
    help="Send one record at a time, without a rate, like kafka-e2e-latency.",
)
@click.option(
    "--idle", type=Seconds(0, min_open=True), default=10.0, show_default=True,
    help="Fail if a record does not arrive within N seconds.",
)  # fmt: skip
@_quiet
@header_option
@client_options
def bench_latency(
    topics: Sequence[str],
    one_by_one: bool,
    idle: float,
    quiet: bool,
    options: ClientOptions,
    **given: Any,
) -> None:
    """Write and read records, and measure the end-to-end latency. The default rate is 100."""
    from barnabas.cli.load.bench_runs import HEAD_SIZE, run_latency

    if one_by_one and given["rate"] is not None:
        raise click.UsageError("give --rate or --one-by-one")
    if given["record_size"] < HEAD_SIZE:
        raise click.UsageError(f"--record-size must be at least {HEAD_SIZE}")
    load, name = _load(given), _one_topic(topics)
    if not one_by_one and load.rate is None:
        load = load._replace(rate=_LATENCY_RATE)
    defaults = {"compression.type": given["compression"], "acks": given["acks"]}
    options = options.with_flags(PRODUCER_FLAGS)
    config = client_config(options, defaults)
    with connected(options, defaults) as client, _topic(client, name, given) as topic:
        run = partial(run_latency, config, topic, load, idle_s=idle)
        _measure(("latency", f"latency over {topic}", topic), run, load, quiet, options.as_json)


def _measure(
    names: tuple[str, str, str],
    run: Callable[[Measurement], KeyboardInterrupt | None],
    load: Load | None,
    quiet: bool,
    as_json: bool,
) -> Measurement:
    """Run a load with its live display, and print the result; exit with 1 if records failed.

    Args:
        names: The kind of load, the title of the display, and the topic.
        run: Fills the measurement; returns the interrupt that ended it early, if one did.
        load: The options of a load that writes; None for one that reads.
        quiet: Whether there is no live display.
        as_json: Whether the result is printed as JSON.

    Raises:
        KeyboardInterrupt: The run was interrupted; its result so far is printed.
    """
    kind, title, topic = names
    with displayed(title, visible=not quiet) as show:
        found = Measurement(show)
        interrupt = run(found)
    if as_json:
        rate = None if load is None else load.rate
        echo_json({"bench": kind, "topic": topic, "rate": rate, **found.as_json()})
    else:
        echo_result(f"{kind} {topic}", found)
    if found.failed:
        sys.exit(EXIT_FAILED)
    if interrupt is not None:
        raise interrupt
    return found
