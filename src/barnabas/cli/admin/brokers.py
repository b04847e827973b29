"""`barnabas brokers`, `features` and `log-dirs`: the nodes of a cluster.

The commands list and unregister brokers, change the feature levels that the cluster has finalized
(KIP-584), and show the contents of the brokers' data directories (KIP-113, KIP-827).
`broker_removal` checks whether brokers may stop.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from barnabas.cli.admin.broker_removal import check_brokers, refusal_to_unregister
from barnabas.cli.common import terminal
from barnabas.cli.common.named_topics import topic_arguments
from barnabas.cli.common.output import (
    EXIT_FAILED,
    ClientOptions,
    client_options,
    connected,
    echo_json,
    fail,
    problem,
)
from barnabas.cli.common.printable import echo
from barnabas.cli.common.tables import bad, dim, echo_table, good, header_option, warn
from barnabas.cli.common.units import size
from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from barnabas.client.admin.cluster import UpgradeType
    from barnabas.client.admin.log_dirs import LogDirectory, ReplicaInfo
    from barnabas.client.connections.metadata_cache import TopicInfo
    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition

BROKERS_EXAMPLES = """\b
Examples:
  barnabas brokers list
  barnabas brokers list --json
  barnabas brokers check 3
  barnabas brokers unregister 3
"""
_FENCED = "fenced"


@click.group(epilog=BROKERS_EXAMPLES)
def brokers() -> None:
    """List, check and unregister brokers."""


brokers.add_command(check_brokers)


@brokers.command(
    "list",
    epilog="\b\nExamples:\n  barnabas brokers list\n\n"
    "A fenced broker is registered but serves no clients: it is stopped, dead, or not ready yet.\n",
)
@header_option
@client_options
def list_brokers(options: ClientOptions) -> None:
    """List the registered brokers with their addresses, racks and states."""
    with connected(options) as client:
        found = client.describe_cluster()
    states = [(broker, "serves") for broker in found.brokers]
    states += [(broker, _FENCED) for broker in found.fenced]
    states.sort(key=lambda item: item[0].id)
    if options.as_json:
        listed: list[dict[str, Any]] = [
            {
                "broker": broker.id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "state": state,
            }
            for broker, state in states
        ]
        echo_json({"cluster_id": found.cluster_id, "brokers": listed})
        return
    rows = [
        (broker.id, broker.address, broker.rack, warn(state) if state == _FENCED else good(state))
        for broker, state in states
    ]
    echo_table(("broker", "address", "rack", "state"), rows)


@brokers.command(
    "unregister",
    epilog="\b\nExamples:\n  barnabas brokers unregister 3 --yes\n\n"
    "Move its partitions to other brokers first: barnabas rebalance --exclude-broker 3. "
    "A running broker registers itself again; --force unregisters it anyway.\n",
)
@click.argument("broker", type=click.IntRange(0), metavar="BROKER")
@click.option(
    "-f",
    "--force",
    is_flag=True,
    help="Unregister the broker even if it still serves clients, or has the only in-sync replica "
    "of a partition.",
)
@terminal.yes_option
@client_options
def unregister_broker(broker: int, force: bool, options: ClientOptions) -> None:
    """Remove a broker from the cluster's metadata. Asks for confirmation on a terminal.

    Without a terminal, a broker that has replicas is only unregistered with --yes. A broker that
    has the only in-sync replica of a partition is only unregistered with --force.
    """
    with connected(options) as client:
        serving = [each.id for each in client.describe_cluster().brokers]
        if broker in serving and not force:
            fail(
                f"broker {broker} still serves clients: stop it first, or give --force (it would "
                f"register itself again)"
            )
        topics = client.describe_topics()
        refusal = None if force else refusal_to_unregister(topics, broker)
        if refusal is not None:
            fail(f"{refusal}; --force unregisters it anyway, and its records are lost")
        replicas = _replicas_text(topics, broker)
        if replicas and not (terminal.is_confirmed() or terminal.has_terminal()):
            fail(f"broker {broker} has {replicas}; to unregister it anyway, give --yes")
        detail = f" It has {replicas}." if replicas else ""
        terminal.confirm(f"Unregister broker {broker}?{detail}")
        client.admin.unregister_broker(broker)
        if options.as_json:
            echo_json({"unregistered": broker})
        else:
            echo(f"unregistered broker {broker}")


def _replicas_text(topics: Mapping[str, TopicInfo], broker: int) -> str:
    """Return how many replicas a broker has, in words; empty if it has none."""
    held = [
        partition
        for topic in topics.values()
        for partition in topic.partitions.values()
        if broker in partition.replicas
    ]
    if not held:
        return ""
    alone = sum(len(partition.replicas) == 1 for partition in held)
    lost = f", {alone} of them without another replica" if alone else ""
    return f"{len(held)} replica{'' if len(held) == 1 else 's'}{lost}: move them first"


FEATURES_EXAMPLES = """\b
Examples:
  barnabas features list
  barnabas features upgrade metadata.version=33 --dry-run
  barnabas features downgrade eligible.leader.replicas.version=0
"""

# Feature -> lowest and highest level that all brokers support.
Supported = dict[str, tuple[int, int]]


@click.group(epilog=FEATURES_EXAMPLES)
def features() -> None:
    """List, upgrade and downgrade feature levels."""


@features.command(
    "list",
    epilog="\b\nExamples:\n  barnabas features list --json\n\n"
    "The finalized level is active in the cluster; 0 means that the feature is "
    "disabled. Every active broker supports the supported levels.\n",
)
@header_option
@client_options
def list_features(options: ClientOptions) -> None:
    """List each feature with its finalized level and the levels that all brokers support."""
    with connected(options) as client:
        supported, finalized = feature_levels(client)
    names = sorted({*supported, *finalized})
    if options.as_json:
        listed = [
            {
                "feature": name,
                "finalized": finalized.get(name, 0),
                "supported_min": supported[name][0] if name in supported else None,
                "supported_max": supported[name][1] if name in supported else None,
            }
            for name in names
        ]
        echo_json(listed)
        return
    rows: list[tuple[object, ...]] = []
    for name in names:
        low, high = supported.get(name, (None, None))
        level = finalized.get(name, 0)
        could_rise = high is not None and level < high
        rows.append((name, warn(level) if could_rise else level, low, high))
    echo_table(("feature", "finalized", "supported from", "to"), rows)


def feature_levels(client: Client) -> tuple[Supported, dict[str, int]]:
    """Return the levels that all unfenced brokers support, and the finalized levels."""
    supported: Supported = {}
    finalized: dict[str, int] = {}
    for number, broker in enumerate(client.describe_cluster().brokers):
        found = client.admin.describe_versions(broker.id)
        # A broker that has just joined may not know the finalized levels yet.
        finalized = {**found.finalized_features, **finalized}
        own = found.supported_features
        if number == 0:
            supported = dict(own)
            continue
        supported = {
            name: (max(low, own[name][0]), min(high, own[name][1]))
            for name, (low, high) in supported.items()
            if name in own
        }
    return supported, finalized


@features.command(
    "upgrade",
    epilog="\b\nExamples:\n  barnabas features upgrade eligible.leader.replicas.version=1\n"
    "  barnabas features upgrade metadata.version=33 --dry-run\n",
)
@click.argument("pairs", nargs=-1, required=True, metavar="FEATURE=LEVEL...")
@click.option("--dry-run", is_flag=True, help="Validate the levels without applying them.")
@client_options
def upgrade_features(pairs: Sequence[str], dry_run: bool, options: ClientOptions) -> None:
    """Raise the levels of features, all or none of them."""
    from barnabas.client.admin.cluster import UpgradeType

    _update(_parse(pairs), UpgradeType.UPGRADE, options, dry_run=dry_run)


@features.command(
    "downgrade",
    epilog="\b\nExamples:\n  barnabas features downgrade eligible.leader.replicas.version=0\n"
    "  barnabas features downgrade metadata.version=25 --dry-run\n",
)
@click.argument("pairs", nargs=-1, required=True, metavar="FEATURE=LEVEL...")
@click.option("--unsafe", is_flag=True, help="Downgrade even if the lower level loses metadata.")
@click.option("--dry-run", is_flag=True, help="Validate the levels without applying them.")
@client_options
def downgrade_features(
    pairs: Sequence[str], unsafe: bool, dry_run: bool, options: ClientOptions
) -> None:
    """Lower the levels of features, all or none of them; level 0 disables a feature."""
    from barnabas.client.admin.cluster import UpgradeType

    kind = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE
    _update(_parse(pairs), kind, options, dry_run=dry_run)


def _parse(pairs: Sequence[str]) -> dict[str, int]:
    levels = {}
    for pair in pairs:
        name, _, level = pair.partition("=")
        if not name or not level.isdecimal() or int(level) > 32_767:
            raise click.UsageError(f"{pair}: write FEATURE=LEVEL with a level from 0 to 32767")
        levels[name] = int(level)
    return levels


def _update(
    levels: Mapping[str, int], kind: UpgradeType, options: ClientOptions, *, dry_run: bool
) -> None:
    with connected(options) as client:
        _, before = feature_levels(client)
        error: ClientError | None = None
        try:
            client.admin.update_features(levels, kind=kind, validate_only=dry_run)
        except ClientError as refused:
            error = refused
    if options.as_json:
        moves = {name: {"from": before.get(name, 0), "to": to} for name, to in levels.items()}
        message = None if error is None else str(error)
        echo_json({"features": moves, "executed": error is None and not dry_run, "error": message})
    elif error is not None:
        problem(f"{error}. No feature was changed")
    else:
        done = "would change" if dry_run else "changed"
        for name, to in levels.items():
            echo(f"{done} {name} from {before.get(name, 0)} to {to}")
    if error is not None:
        sys.exit(EXIT_FAILED)


LOG_DIRS_EXAMPLES = """\b
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


class Place(NamedTuple):
    """One log directory of one broker, with the replicas to show."""

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


@click.command("log-dirs", epilog=LOG_DIRS_EXAMPLES)
@topic_arguments("names", required=False)
@click.option(
    "--broker",
    "wanted",
    type=click.IntRange(0),
    multiple=True,
    help="Show only these brokers. May be repeated.",
)
@click.option("-r", "--replicas", "each_replica", is_flag=True, help="Show one line per replica.")
@header_option
@client_options
def log_dirs(
    names: Sequence[str], wanted: Sequence[int], each_replica: bool, options: ClientOptions
) -> None:
    """Show size, lag and future replicas of each data directory, of all topics or the TOPICs."""
    with connected(options, _DEFAULTS, limit_total=True) as client:
        brokers = _brokers(client, wanted)
        if names:
            client.describe_topics(names, may_be_new=False)
        found = client.admin.describe_log_dirs(brokers, once=True)
    silent = {node: each for node, each in found.items() if isinstance(each, ClientError)}
    places = list(places_of(found, names))
    if options.as_json:
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


def places_of(
    found: dict[int, list[LogDirectory] | ClientError], names: Sequence[str]
) -> Iterator[Place]:
    """Yield the log directories of the brokers that answered.

    Args:
        found: The directories, or an error, by broker.
        names: The topics whose replicas are wanted; empty for all.
    """
    for node, directories in sorted(found.items()):
        if isinstance(directories, ClientError):
            continue
        for directory in sorted(directories, key=lambda each: each.path):
            replicas = {
                tp: replica
                for tp, replica in sorted(directory.replicas.items())
                if not names or tp.topic in names
            }
            yield Place(node, directory, replicas)


def _row(place: Place) -> tuple[object, ...]:
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


def _replica_rows(place: Place) -> Iterator[tuple[object, ...]]:
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


def _as_json(places: Sequence[Place], silent: dict[int, ClientError]) -> list[dict[str, Any]]:
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
