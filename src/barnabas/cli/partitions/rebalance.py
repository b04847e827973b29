"""`barnabas rebalance`: balance brokers by size, traffic and number of replicas, or empty one.

The moves are reassignments as those of `barnabas partitions reassign`. Sizes come from the brokers'
log directories. The traffic of a partition is the growth of its log during a short measurement.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from barnabas.cli.admin.group_lag import known_offsets
from barnabas.cli.common.groups import DefaultGroup
from barnabas.cli.common.machine_lines import machines_of
from barnabas.cli.common.named_brokers import broker_ids, brokers_on, named_brokers
from barnabas.cli.common.named_topics import topic_arguments
from barnabas.cli.common.output import (
    EXIT_FAILED,
    ClientOptions,
    client_options,
    connected,
    echo_json,
    fail,
    warning,
)
from barnabas.cli.common.printable import counted, echo
from barnabas.cli.common.tables import dim, echo_table, header_option, warn
from barnabas.cli.common.terminal import confirm, has_terminal, is_confirmed, yes_option_with
from barnabas.cli.common.units import NumberRange, Seconds, Size, size
from barnabas.cli.partitions.balancing import PartitionLoad, broker_loads, plan_balance
from barnabas.cli.partitions.move_progress import bytes_to_copy, partition_sizes, replica_sizes
from barnabas.cli.partitions.moving import cancel_moves, echo_moves, echo_status, run_moves
from barnabas.cli.partitions.planning import (
    PlanError,
    moves,
    sharing_machines,
)
from barnabas.cli.partitions.reassign import DEFAULTS, current_replicas, plan_json
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from barnabas.cli.partitions.balancing import BrokerLoad
    from barnabas.cli.partitions.planning import Move
    from barnabas.client.connections.metadata_cache import NodeInfo
    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition

# On a terminal, more moves are only counted.
_SHOWN_MOVES_MAX = 30

EXAMPLES = """\b
Examples:
  barnabas rebalance                           show the plan, and ask
  barnabas rebalance --dry-run                 only show the plan
  barnabas rebalance --throttle 50MB --yes
  barnabas rebalance --exclude-broker 3        move everything away from broker 3
  barnabas rebalance --exclude-machine host3   move everything away from all brokers of a host
  barnabas rebalance status
  barnabas rebalance stop
"""

RUN_EXAMPLES = """\b
Examples:
  barnabas rebalance run --dry-run
  barnabas rebalance run orders payments --brokers 1,2,4 --yes
  barnabas rebalance run --exclude-broker 3 --throttle 50MB --yes --no-wait
  barnabas rebalance run --json > plan.json

\b
The plan copies few bytes: a broker whose bytes, traffic and number of replicas are within
--tolerance of the average stays as it is. The racks of a partition do not become fewer. Replicas
of a partition that share a machine, that is the host of several brokers, move apart while another
machine is there. Preferred leaders are spread too, which copies nothing. Without TOPIC, the plan
covers all topics, including internal ones. --json prints the plan in the format of `barnabas
partitions reassign --file` and of Kafka's tool, with more fields.

\b
Ctrl-C ends the command but not the moves: `barnabas rebalance status` shows them, and
`barnabas rebalance stop` cancels them. It removes their throttles, also after the moves.
"""


@click.group(cls=DefaultGroup, default_command="run", epilog=EXAMPLES)
def rebalance() -> None:
    """Balance brokers by size and traffic, or move everything away from a broker.

    The default subcommand is `run`, whose --help lists the options. For a topic named like a
    subcommand, use `run NAME`.
    """


class Balance(NamedTuple):
    """The cluster before the plan, and the plan."""

    # The brokers that the plan uses.
    brokers: Mapping[int, NodeInfo]
    current: Mapping[TopicPartition, Sequence[int]]
    wanted: Mapping[TopicPartition, Sequence[int]]
    loads: Mapping[TopicPartition, PartitionLoad]
    planned: Sequence[Move]

    @property
    def racks(self) -> Mapping[int, str | None]:
        """Rack by broker."""
        return {broker: node.rack for broker, node in self.brokers.items()}

    @property
    def machines(self) -> Mapping[int, str]:
        """Machine by broker, if there are several machines and one has several brokers."""
        named = machines_of(self.brokers.values())
        return named if 1 < len(set(named.values())) < len(named) else {}

    @property
    def bytes_to_copy(self) -> int:
        """Bytes that the new replicas copy."""
        return bytes_to_copy(self.planned, {tp: load.size for tp, load in self.loads.items()})


@rebalance.command("run", epilog=RUN_EXAMPLES)
@topic_arguments("topics", required=False)
@click.option("--brokers", metavar="ID,...", help="Use only these brokers.  [default: all]")
@click.option(
    "--exclude-broker",
    "--drain",
    "excluded",
    multiple=True,
    metavar="ID,...",
    help="Move all replicas away from this broker. May be repeated.",
)
@click.option(
    "--exclude-machine",
    "machines",
    multiple=True,
    metavar="HOST",
    help="Move all replicas away from the brokers of this host. May be repeated.",
)
@click.option(
    "--tolerance",
    type=NumberRange(0, 100),
    default=10.0,
    show_default=True,
    metavar="PERCENT",
    help="Allowed difference between a broker and the average.",
)
@click.option(
    "--measure",
    "seconds",
    type=Seconds(0, 3600),
    default=3.0,
    show_default=True,
    metavar="SECONDS",
    help="Measure the traffic for this time; 0 balances without it.",
)
@click.option(
    "--throttle", type=Size(1), metavar="SIZE", help="Bytes per second and broker, such as 50MB."
)
@click.option("--dry-run", is_flag=True, help="Only show the plan.")
@yes_option_with("Start the moves without a question.", "--execute")
@click.option(
    "--wait/--no-wait", default=True, help="Wait until all replicas have moved.  [default: wait]"
)
@header_option
@client_options
def run_rebalance(
    topics: Sequence[str],
    brokers: str | None,
    excluded: Sequence[str],
    machines: Sequence[str],
    tolerance: float,
    seconds: float,
    throttle: int | None,
    dry_run: bool,
    wait: bool,
    options: ClientOptions,
) -> None:
    """Show a plan that balances the brokers, and execute it after a question.

    Without a terminal, the plan is only executed with --yes.
    """
    if dry_run and is_confirmed():
        raise click.UsageError("give either --dry-run or --yes")
    with connected(options, DEFAULTS) as client:
        used = used_brokers(client, brokers, excluded, machines)
        balance = _plan(client, topics, used, tolerance / 100, seconds)
        if options.as_json:
            echo_json(balance_json(balance))
        else:
            _echo_balance(balance)
        if not balance.planned:
            return
        if dry_run or not (is_confirmed() or has_terminal()):
            echo("nothing was changed: use --yes to start the moves", err=True)
            return
        confirm("Start the moves?")
        done = run_moves(client, balance.planned, throttle, wait=wait, as_json=options.as_json)
        if not done:
            sys.exit(EXIT_FAILED)
        if wait:
            _elect(client, balance.planned)
            _echo_emptied(client, set(used))


def used_brokers(
    client: Client, brokers: str | None, excluded: Sequence[str], machines: Sequence[str] = ()
) -> dict[int, NodeInfo]:
    """Return the brokers that may have replicas.

    A broker that is registered but does not serve is never used. Unless it is left out explicitly,
    the command ends: its replicas should not move because of a restart.

    Args:
        client: The client of the command.
        brokers: Ids of brokers to use; None for all.
        excluded: Ids of brokers that are left out.
        machines: Hosts whose brokers are left out.
    """
    cluster = client.describe_cluster()
    serving = {node.id: node for node in cluster.brokers}
    known = {**serving, **{node.id: node for node in cluster.fenced}}
    left_out = {
        broker for text in excluded for broker in broker_ids(text, known, "--exclude-broker")
    }
    for machine in machines:
        left_out.update(brokers_on(machine, known.values()))
    if brokers is None:
        used = [broker for broker in known if broker not in left_out]
    else:
        used = broker_ids(brokers, known, "--brokers")
        both = left_out.intersection(used)
        if both:
            raise click.UsageError(f"broker {min(both)} is in --brokers and is also excluded")
    if not used:
        fail("no broker is left")
    for broker in used:
        if broker not in serving:
            fail(
                f"broker {broker} does not serve: start it, or give --exclude-broker {broker} to "
                "move its replicas to other brokers"
            )
    return {broker: serving[broker] for broker in used}


def _plan(
    client: Client,
    topics: Sequence[str],
    brokers: Mapping[int, NodeInfo],
    tolerance: float,
    seconds: float,
) -> Balance:
    active = client.admin.list_reassignments()
    if active:
        fail(
            f"replicas of {counted(len(active), 'partition')} are already moving: wait until "
            "`barnabas rebalance status` shows none, or cancel with `barnabas rebalance stop`"
        )
    if topics:
        client.describe_topics(topics, may_be_new=False)
    current = current_replicas(client, ())
    loads = measure_loads(client, current, seconds)
    movable = [tp for tp in current if not topics or tp.topic in topics]
    racks = {broker: node.rack for broker, node in brokers.items()}
    machines = machines_of(brokers.values())
    try:
        wanted = plan_balance(
            current, loads, racks, movable=movable, tolerance=tolerance, machines=machines
        )
    except PlanError as error:
        fail(str(error))
    return Balance(brokers, current, wanted, loads, moves(current, wanted))


def measure_loads(
    client: Client, partitions: Collection[TopicPartition], seconds: float
) -> dict[TopicPartition, PartitionLoad]:
    """Measure the size and the traffic of partitions.

    Args:
        client: The client of the command.
        partitions: The partitions.
        seconds: The time of the measurement of the traffic; 0 for none.

    Raises:
        ClientError: A broker does not answer, or the user may not describe its directories.
    """
    brokers = [node.id for node in client.describe_cluster().brokers]
    sizes = partition_sizes(replica_sizes(client, brokers))
    rates = _rates(client, partitions, sizes, seconds) if seconds > 0 else {}
    return {tp: PartitionLoad(sizes.get(tp, 0), rates.get(tp, 0.0)) for tp in partitions}


def _rates(
    client: Client,
    partitions: Collection[TopicPartition],
    sizes: Mapping[TopicPartition, int],
    seconds: float,
) -> dict[TopicPartition, float]:
    """Measure the bytes per second that arrive; a partition without a leader has no entry."""
    started = time.monotonic()
    before = known_offsets(client, partitions, "latest")
    starts = known_offsets(client, partitions, "earliest")
    time.sleep(max(0.0, seconds - (time.monotonic() - started)))
    after = known_offsets(client, partitions, "latest")
    elapsed = time.monotonic() - started
    rates = {}
    for tp in before.keys() & after.keys() & starts.keys():
        kept = after[tp] - starts[tp]
        rates[tp] = byte_rate((after[tp] - before[tp]) / elapsed, kept, sizes.get(tp, 0))
    return rates


def byte_rate(record_rate: float, records: int, log_bytes: int) -> float:
    """Return the bytes per second of new records, which are as large as the average record.

    Args:
        record_rate: New records per second; negative after the log was truncated.
        records: Number of offsets in the log.
        log_bytes: Size of the log.
    """
    return max(0.0, record_rate) * log_bytes / records if records > 0 else 0.0


def _shown_brokers(balance: Balance) -> dict[int, tuple[BrokerLoad, BrokerLoad]]:
    """Return the loads of all brokers that have replicas, before and after the plan."""
    before = broker_loads(balance.current, balance.loads, balance.brokers)
    after = broker_loads(balance.wanted, balance.loads, before)
    return {broker: (before[broker], after[broker]) for broker in sorted(before)}


def balance_json(balance: Balance) -> dict[str, Any]:
    """Return the plan in the format of a reassignment file, with the loads of the brokers."""
    changed = {move.partition: move.after for move in balance.planned}
    racks, machines = balance.racks, balance.machines
    return {
        **plan_json(changed),
        "bytes_to_copy": balance.bytes_to_copy,
        "brokers": [
            {
                "broker": broker,
                "rack": racks.get(broker),
                "machine": machines.get(broker),
                "before": _load_json(before),
                "after": _load_json(after),
            }
            for broker, (before, after) in _shown_brokers(balance).items()
        ],
    }


def _load_json(load: BrokerLoad) -> dict[str, Any]:
    return {
        "replicas": load.replicas,
        "preferred_leaders": load.leaders,
        "bytes": load.size,
        "bytes_per_second": round(load.rate, 1),
    }


def _echo_balance(balance: Balance) -> None:
    if not balance.planned:
        echo("nothing to do: the brokers are balanced")
        return
    racks, machines = balance.racks, balance.machines
    rows: list[tuple[object, ...]] = [
        (
            broker,
            *([machines.get(broker)] if machines else []),
            racks.get(broker),
            _change(before.replicas, after.replicas),
            _change(before.leaders, after.leaders),
            _change(size(before.size), size(after.size)),
            _change(f"{size(before.rate)}/s", f"{size(after.rate)}/s"),
        )
        for broker, (before, after) in _shown_brokers(balance).items()
    ]
    columns = ("rack", "replicas", "leaders", "size", "traffic")
    echo_table(("broker", "machine", *columns) if machines else ("broker", *columns), rows)
    if sys.stdout.isatty():
        echo()
    shown = balance.planned[:_SHOWN_MOVES_MAX] if sys.stdout.isatty() else balance.planned
    echo_moves(shown)
    more = len(balance.planned) - len(shown)
    if more:
        echo(f"and {counted(more, 'more partition')}; --json prints all")
    copies = sum(len(move.adding) for move in balance.planned)
    words = f"{counted(copies, 'replica')} of {size(balance.bytes_to_copy)} will be copied"
    apart = len(_sharing(balance, balance.current)) - len(_sharing(balance, balance.wanted))
    if apart > 0:
        words += f", {counted(apart, 'partition')} will no longer have two replicas on a machine"
    echo(f"{counted(len(balance.planned), 'partition')} will change: {words}", err=True)


def _sharing(
    balance: Balance, replicas: Mapping[TopicPartition, Sequence[int]]
) -> list[TopicPartition]:
    """Return the partitions whose replicas share a machine, though another has no replica."""
    machines = balance.machines
    return sharing_machines(replicas, machines, machines) if machines else []


def _echo_emptied(client: Client, used: Collection[int]) -> None:
    """Print how to remove the brokers that the plan has emptied."""
    cluster = client.describe_cluster()
    left_out = {node.id for node in (*cluster.brokers, *cluster.fenced)} - set(used)
    if not left_out:
        return
    holders = {node for nodes in current_replicas(client, ()).values() for node in nodes}
    empty = sorted(left_out - holders)
    if empty:
        ids = ",".join(map(str, empty))
        echo(
            f"no replica is left on {named_brokers(empty)}: `barnabas brokers check {ids} "
            "--remove` checks it again; then stop the process, and run "
            f"`barnabas brokers unregister` for each id",
            err=True,
        )


def _change(before: object, after: object) -> object:
    return dim(before) if before == after else warn(f"{before} → {after}")


def _elect(client: Client, planned: Sequence[Move]) -> None:
    """Elect the preferred leaders of the partitions whose preferred leader changed."""
    from barnabas.client.admin.partitions import ElectionType

    changed = [move.partition for move in planned if move.before[0] != move.after[0]]
    if not changed:
        return
    results = client.admin.elect_leaders(ElectionType.PREFERRED, changed, raise_errors=False)
    left = [
        error
        for error in results.values()
        if error is not None and error.error_code != ErrorCode.ELECTION_NOT_NEEDED
    ]
    if left:
        warning(
            f"{counted(len(left), 'partition')} without the preferred leader ({left[0]}): "
            "`barnabas partitions elect` elects it later"
        )


@rebalance.command(
    "status",
    epilog="\b\nExamples:\n  barnabas rebalance status orders --json\n",
)
@topic_arguments("topics", required=False)
@header_option
@client_options
def show_status(topics: Sequence[str], options: ClientOptions) -> None:
    """Show the active moves and their progress; without moves, name throttles that are left."""
    with connected(options, DEFAULTS) as client:
        echo_status(client, topics, as_json=options.as_json)


@rebalance.command(
    "stop",
    epilog="\b\nExamples:\n  barnabas rebalance stop\n  barnabas rebalance stop orders\n\n"
    "Partitions whose move is complete stay where they are.\n",
)
@topic_arguments("topics", required=False)
@client_options
def stop_moves(topics: Sequence[str], options: ClientOptions) -> None:
    """Cancel the active moves; remove their throttles, and those of moves that are complete."""
    with connected(options, DEFAULTS) as client:
        cancel_moves(client, topics, as_json=options.as_json)
