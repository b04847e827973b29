"""`barnabas log-dirs`: the contents of the brokers' data directories (KIP-113, KIP-827)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from barnabas.cli.common.output import EXIT_FAILED, client_options, connected, echo_json, problem
from barnabas.cli.common.tables import bad, dim, echo_table, warn
from barnabas.cli.common.topic_names import topic_arguments
from barnabas.cli.common.units import size
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.client.admin.log_dirs import LogDirectory, ReplicaInfo
    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition

EXAMPLES = """\b
Examples:
  barnabas log-dirs
  barnabas log-dirs --broker 1 --broker 2
  barnabas log-dirs flights --replicas
  barnabas log-dirs --json

\b
The lag is the number of records by which a replica is behind the high watermark, or a future
replica behind the current one. A future replica is the copy of a replica that moves between two
directories of a broker. Exit status 1: a directory cannot be used, or a broker does not answer.
"""
# Timeouts are short, because a broker that does not answer is part of the output.
_DEFAULTS = {"request.timeout.ms": "5000"}


class _Place(NamedTuple):
    """One directory of one broker, with the replicas to show."""

    broker: int
    directory: LogDirectory
    replicas: dict[TopicPartition, ReplicaInfo]

    @property
    def size(self) -> int:
        """Size of the shown replicas in bytes."""
        return sum(each.size for each in self.replicas.values())

    @property
    def lag(self) -> int:
        """The largest lag of a replica that is not a future replica, in records."""
        lags = (each.offset_lag for each in self.replicas.values() if not each.is_future)
        return max((lag for lag in lags if lag > 0), default=0)

    @property
    def future(self) -> int:
        """Number of future replicas."""
        return sum(each.is_future for each in self.replicas.values())


@click.command("log-dirs", epilog=EXAMPLES)
@topic_arguments("names", required=False)
@click.option(
    "--broker",
    "wanted",
    type=click.IntRange(0),
    multiple=True,
    help="Show only these brokers. May be repeated.",
)
@click.option("-r", "--replicas", "each_replica", is_flag=True, help="Show one line per replica.")
@client_options
def log_dirs(
    names: Sequence[str],
    wanted: Sequence[int],
    each_replica: bool,
    bootstrap: str,
    properties: Sequence[str],
    as_json: bool,
) -> None:
    """Show size, lag and future replicas of each data directory, of all topics or the TOPICs."""
    with connected(bootstrap, properties, _DEFAULTS, limit_total=True) as client:
        brokers = _brokers(client, wanted)
        if names:
            client.describe_topics(names, may_be_new=False)
        found = client.admin.describe_log_dirs(brokers, once=True)
    silent = {node: each for node, each in found.items() if isinstance(each, ClientError)}
    places = list(_places(found, names))
    if as_json:
        echo_json(_as_json(places, silent))
    elif each_replica:
        heads = ("broker", "directory", "partition", "size", "lag", "kind")
        echo_table(heads, [row for place in places for row in _replica_rows(place)])
    else:
        columns = ("broker", "directory", "size", "replicas", "lag", "future", "free", "state")
        echo_table(columns, [_row(place) for place in places])
    for node, error in silent.items():
        problem(f"broker {node}: {error}")
    if silent or any(place.directory.error is not None for place in places):
        sys.exit(EXIT_FAILED)


def _brokers(client: Client, wanted: Sequence[int]) -> list[int]:
    serving = [broker.id for broker in client.describe_cluster().brokers]
    for node in wanted:
        if node not in serving:
            known = ", ".join(map(str, sorted(serving)))
            raise click.UsageError(
                f"--broker {node}: no such active broker; active brokers: {known}"
            )
    return list(wanted) or serving


def _places(
    found: dict[int, list[LogDirectory] | ClientError], names: Sequence[str]
) -> Iterator[_Place]:
    for node, directories in sorted(found.items()):
        if isinstance(directories, ClientError):
            continue
        for directory in sorted(directories, key=lambda each: each.path):
            replicas = {
                tp: replica
                for tp, replica in sorted(directory.replicas.items())
                if not names or tp.topic in names
            }
            yield _Place(node, directory, replicas)


def _row(place: _Place) -> tuple[object, ...]:
    directory = place.directory
    free: object = None
    if directory.total_bytes > 0:
        share = directory.usable_bytes / directory.total_bytes
        text = f"{size(directory.usable_bytes)} ({share:.0%})"
        free = warn(text) if share < 0.1 else text
    error = directory.error
    return (
        place.broker,
        directory.path,
        size(place.size),
        len(place.replicas) - place.future,
        warn(place.lag) if place.lag else 0,
        place.future or dim(0),
        free,
        "ok" if error is None else bad(error.error_code.name if error.error_code else error),
    )


def _replica_rows(place: _Place) -> Iterator[tuple[object, ...]]:
    for tp, replica in place.replicas.items():
        lag = replica.offset_lag
        yield (
            place.broker,
            place.directory.path,
            str(tp),
            size(replica.size),
            warn(lag) if lag > 0 else lag,
            warn("future") if replica.is_future else "current",
        )


def _as_json(places: Sequence[_Place], silent: dict[int, ClientError]) -> list[dict[str, Any]]:
    """Return a list of brokers, with sizes in bytes and lags in records."""
    brokers: dict[int, dict[str, Any]] = {
        node: {"broker": node, "error": str(error), "directories": []}
        for node, error in silent.items()
    }
    for place in places:
        directory = place.directory
        replicas = [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "size_bytes": replica.size,
                "lag": replica.offset_lag,
                "future": replica.is_future,
            }
            for tp, replica in place.replicas.items()
        ]
        brokers.setdefault(
            place.broker, {"broker": place.broker, "error": None, "directories": []}
        )["directories"].append(
            {
                "path": directory.path,
                "error": None if directory.error is None else str(directory.error),
                "total_bytes": directory.total_bytes if directory.total_bytes >= 0 else None,
                "usable_bytes": directory.usable_bytes if directory.usable_bytes >= 0 else None,
                "size_bytes": place.size,
                "lag": place.lag,
                "future_replicas": place.future,
                "replicas": replicas,
            }
        )
    return [brokers[node] for node in sorted(brokers)]
