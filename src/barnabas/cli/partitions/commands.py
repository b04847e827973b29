"""`barnabas partitions`: show partitions, once or live, and elect their leaders.

`show` is the default subcommand: `partitions orders` means `partitions show orders`.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common.groups import DefaultGroup
from barnabas.cli.common.named_topics import partitions_of, topic_arguments
from barnabas.cli.common.output import (
    EXIT_FAILED,
    ClientOptions,
    client_options,
    connected,
    echo_json,
    problem,
)
from barnabas.cli.common.printable import counted, echo, printable
from barnabas.cli.common.tables import (
    Styled,
    bad,
    console,
    dim,
    echo_line,
    echo_table,
    good,
    header_option,
    table,
    warn,
)
from barnabas.cli.common.terminal import confirm, quit_by_key, yes_option_with
from barnabas.cli.common.units import Seconds, amount
from barnabas.cli.partitions.reassign import reassign_partitions
from barnabas.cli.partitions.snapshot import take_snapshots
from barnabas.client.errors import ClientError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from barnabas.cli.partitions.snapshot import PartitionSnapshot
    from barnabas.client.errors import BrokerError
    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition

EXAMPLES = """\b
Examples:
  barnabas partitions                                   all partitions, once
  barnabas partitions orders --live
  barnabas partitions show --unwell
  barnabas partitions reassign orders --brokers 1,2,3   show the plan
  barnabas partitions elect orders
"""


@click.group(cls=DefaultGroup, default_command="show", epilog=EXAMPLES)
def partitions() -> None:
    """Show partitions and their replicas, move replicas, elect leaders.

    The default subcommand is `show`. For a topic named like a subcommand, use `show NAME`.
    """


partitions.add_command(reassign_partitions)


ELECT_EXAMPLES = """\b
Examples:
  barnabas partitions elect                       all partitions without their preferred leader
  barnabas partitions elect orders payments:0,3
  barnabas partitions elect orders:0 --unclean --yes
"""


@partitions.command("elect", epilog=ELECT_EXAMPLES)
@topic_arguments("specs", "TOPIC[:PARTITION,...]...", required=False)
@click.option(
    "--unclean", is_flag=True, help="If necessary, elect a replica that may lack committed records."
)
@yes_option_with("With --unclean: do not ask for confirmation.")
@client_options
def elect_leaders(specs: Sequence[str], unclean: bool, options: ClientOptions) -> None:
    """Elect the preferred replicas; with --unclean, any live replica if necessary.

    Committed records that an unclean leader lacks are lost permanently. Partitions that need no
    election do not change.
    """
    from barnabas.client.admin.partitions import ElectionType

    if unclean and not specs:
        raise click.UsageError("name the partitions for --unclean")
    if unclean:
        confirm(f"Committed records of {' '.join(specs)} may be lost. Elect?")
    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    with connected(options) as client:
        wanted = partitions_of(client, specs) if specs else None
        results = client.admin.elect_leaders(kind, wanted, raise_errors=False)
        _report(client, results, as_json=options.as_json)


def _report(
    client: Client, results: Mapping[TopicPartition, BrokerError | None], *, as_json: bool
) -> None:
    elected = [tp for tp, error in results.items() if error is None]
    topics = client.describe_topics({tp.topic for tp in elected}, may_be_new=False)
    failed = False
    for tp, error in sorted(results.items()):
        needless = error is not None and error.error_code == ErrorCode.ELECTION_NOT_NEEDED
        failed = failed or (error is not None and not needless)
        leader = topics[tp.topic].partitions[tp.partition].leader if error is None else None
        if as_json:
            echo_json(
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "leader": leader,
                    "error": None if error is None else error.error_code.name,
                    "message": None if error is None else error.detail,
                }
            )
        elif error is None:
            echo(f"{tp}: {leader} leads")
        elif needless:
            echo(f"{tp}: no election needed")
        else:
            problem(str(error))
    if not results and not as_json:
        echo("all partitions are led by their preferred replicas")
    if failed:
        sys.exit(EXIT_FAILED)


SHOW_EXAMPLES = """\b
Examples:
  barnabas partitions show
  barnabas partitions show orders --live
  barnabas partitions show --unwell --json

\b
"end" is the leader's log end offset, "hw" the high watermark, "lag" the number of records by which
each follower is behind. ELR: replicas out of sync that have all committed records. Exit status 1
with --unwell: a partition has a problem.
"""
# A short timeout, because a broker that does not answer is part of the output.
DEFAULTS = {"request.timeout.ms": "3000"}
_BAD = {"offline", "leader-silent", "under-min-isr"}
_MINOR_MARKS = {"not-preferred"}


@partitions.command("show", epilog=SHOW_EXAMPLES)
@topic_arguments("names", required=False)
@click.option(
    "-w", "--live", "--watch", is_flag=True, help="Keep running and show changes; q ends it."
)
@click.option(
    "-i",
    "--interval",
    type=Seconds(0.2),
    default=1.0,
    show_default=True,
    help="Seconds between updates of --live.",
)
@click.option("--unwell", is_flag=True, help="Show only partitions with problems.")
@click.option("--internal", is_flag=True, help="Include internal topics.")
@header_option
@client_options
def show_partitions(
    names: Sequence[str],
    live: bool,
    interval: float,
    unwell: bool,
    internal: bool,
    options: ClientOptions,
) -> None:
    """Show the leader, epoch, offsets, in-sync replicas and lag of partitions."""
    if live and (options.as_json or not sys.stdout.isatty()):
        raise click.UsageError("--live requires a terminal, and cannot be combined with --json")
    with connected(options, DEFAULTS, limit_total=not live) as client:
        if live:
            _show_live(client, names, interval, unwell=unwell, internal=internal)
            return
        found = take_snapshots(client, names, internal=internal)
        shown = [each for each in found if not unwell or is_unhealthy(each)]
        if options.as_json:
            echo_json([snapshot_json(each) for each in shown])
        elif shown:
            echo_table(*rows(shown, compact=sys.stdout.isatty()))
        if not options.as_json:
            _echo_sum(found)
        if unwell and shown:
            sys.exit(1)


def is_unhealthy(snapshot: PartitionSnapshot) -> bool:
    """Return whether there is a mark other than a leader that is not the preferred one."""
    return any(mark not in _MINOR_MARKS for mark in snapshot.marks)


def _echo_sum(found: Sequence[PartitionSnapshot]) -> None:
    if not sys.stdout.isatty():
        return
    unwell = sum(is_unhealthy(each) for each in found)
    count = counted(len(found), "partition")
    if unwell:
        echo_line(
            dim(f"{count}, "), warn(f"{unwell} not well"), dim("; `barnabas why` explains them")
        )
    else:
        echo_line(dim(f"{count}, "), good("all well"))


def rows(
    shown: Sequence[PartitionSnapshot],
    rates: Mapping[TopicPartition, float] | None = None,
    *,
    compact: bool = True,
) -> tuple[list[str], list[list[object]]]:
    """Return the columns and rows of the table.

    Args:
        shown: The partitions to show.
        rates: Records per second, if they are known.
        compact: Whether to omit columns without information and lags of 0, for a terminal.
            Otherwise the columns are always the same, for programs.
    """
    with_elr = not compact or any(each.state.elr for each in shown)
    with_watermark = not compact or any(each.high_watermark != each.end for each in shown)
    columns = ["topic", "#", "leader", "epoch"]
    columns += ["end", "hw"] if with_watermark else ["end=hw"]
    columns += ["replicas", "isr"]
    columns += ["elr"] if with_elr else []
    columns += ["lag"]
    columns += ["rec/s"] if rates is not None else []
    columns += ["state"]
    table_rows = []
    for each in shown:
        row = _place(each)
        row += _offsets(each) if with_watermark else [each.end]
        row += _replicas(each)
        row += [_nodes(each.state.elr or ()) or None] if with_elr else []
        row += [_lags(each, compact=compact)]
        row += [amount(rates.get(each.partition))] if rates is not None else []
        row += [_marks(each)]
        table_rows.append(row)
    return columns, table_rows


def _place(shown: PartitionSnapshot) -> list[object]:
    state = shown.state
    leader: object = state.leader if state.leader >= 0 else bad("none")
    return [*shown.partition, leader, state.leader_epoch if state.leader_epoch >= 0 else None]


def _offsets(shown: PartitionSnapshot) -> list[object]:
    watermark = shown.high_watermark
    if not isinstance(watermark, int):
        return [shown.end, None]
    behind = shown.end is not None and watermark < shown.end
    return [shown.end, warn(watermark) if behind else watermark]


def _replicas(shown: PartitionSnapshot) -> list[object]:
    isr = _nodes(shown.state.isr)
    return [_nodes(shown.state.replicas), warn(isr) if shown.out_of_sync else isr]


def _nodes(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes))


def _lags(shown: PartitionSnapshot, *, compact: bool) -> object:
    """Return NODE:LAG of each follower.

    The lag is "?" if the broker did not report it, and "gone" if the broker does not serve.
    """
    words = []
    behind = False
    followers = [node for node in shown.state.replicas if node != shown.state.leader]
    for node in followers:
        lag = shown.lag_of(node)
        if lag == 0 and compact:
            continue
        behind = behind or lag != 0
        unknown = "?" if node in shown.ends else "gone"
        words.append(f"{node}:{unknown if lag is None else lag}")
    if not followers:
        return dim(None)
    text = " ".join(words) or "0"
    return warn(text) if behind else good(text)


def _marks(shown: PartitionSnapshot) -> Styled:
    marks = shown.marks
    if not marks:
        return good("well")
    # The first mark is the most important one. A reassignment is shown in addition.
    shown_marks = [mark for mark in marks if mark == marks[0] or mark == "moving"]
    style = bad if marks[0] in _BAD else dim if marks[0] in _MINOR_MARKS else warn
    return style(" ".join(shown_marks))


def snapshot_json(shown: PartitionSnapshot) -> dict[str, Any]:
    """Return all facts about one partition, ready for JSON."""
    state = shown.state
    moving = shown.reassignment
    return {
        "topic": shown.partition.topic,
        "partition": shown.partition.partition,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "log_end_offset": shown.end,
        "high_watermark": shown.high_watermark if isinstance(shown.high_watermark, int) else None,
        "replicas": list(state.replicas),
        "isr": list(state.isr),
        "elr": None if state.elr is None else list(state.elr),
        "last_known_elr": None if state.last_known_elr is None else list(state.last_known_elr),
        "offline_replicas": list(state.offline_replicas),
        "min_insync_replicas": shown.min_isr,
        "followers": [
            {"replica": node, "log_end_offset": shown.end_of(node), "lag": shown.lag_of(node)}
            for node in state.replicas
            if node != state.leader
        ],
        "reassignment": None
        if moving is None
        else {"adding": list(moving.adding), "removing": list(moving.removing)},
        "marks": list(shown.marks),
    }


def _show_live(
    client: Client, names: Sequence[str], interval: float, *, unwell: bool, internal: bool
) -> None:
    from rich.live import Live

    before: list[PartitionSnapshot] = []
    rates: dict[TopicPartition, float] = {}
    before_at = 0.0
    terminal = console()
    with quit_by_key() as keyboard, Live(console=terminal, screen=True, auto_refresh=False) as live:
        has_quit = False
        while not has_quit:
            error_text = None
            try:
                found = take_snapshots(client, names, internal=internal)
            except ClientError as error:
                found, error_text = (
                    before,
                    f"no answer; these values are from the last answer: {error}",
                )
            at = time.monotonic()
            if before and error_text is None:
                rates = _rates(before, found, at - before_at)
            shown = [each for each in found if not unwell or is_unhealthy(each)]
            live.update(_screen(shown, rates, error_text, terminal.height), refresh=True)
            before, before_at = found, at
            has_quit = bool(keyboard.pause(interval))


def _rates(
    before: Sequence[PartitionSnapshot], after: Sequence[PartitionSnapshot], seconds: float
) -> dict[TopicPartition, float]:
    """Return the records per second that became readable."""
    earlier = {each.partition: each.high_watermark for each in before}
    rates = {}
    for each in after:
        start, end = earlier.get(each.partition), each.high_watermark
        if isinstance(start, int) and isinstance(end, int) and seconds > 0:
            rates[each.partition] = max(0, end - start) / seconds
    return rates


def _screen(
    shown: Sequence[PartitionSnapshot],
    rates: Mapping[TopicPartition, float],
    error_text: str | None,
    height: int,
) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    unwell = sum(is_unhealthy(each) for each in shown)
    head = Text.assemble(
        ("barnabas partitions", "bold"),
        f"  {len(shown)} partitions  ",
        (f"{unwell} not well", "yellow") if unwell else ("all well", "green"),
        ("   q ends", "dim"),
    )
    parts: list[RenderableType] = [head, Text("")]
    if error_text is not None:
        parts[1] = Text(printable(error_text), style="bold red")
    # If the terminal is too small, partitions with problems take precedence.
    room = max(1, height - 5)
    fitting = sorted(shown, key=lambda each: not is_unhealthy(each))[:room]
    fitting.sort(key=lambda each: each.partition)
    parts.append(table(*rows(fitting, rates)))
    if len(shown) > room:
        parts.append(Text(f"… {len(shown) - room} more", style="dim"))
    return Group(*parts)
