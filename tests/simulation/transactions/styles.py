"""Actions on a `TransactionalWorld`, with their frequencies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from barnabas.metadata.metadata_version import TRANSACTION_VERSION_MAX
from barnabas.sim.network import NetworkConditions

# Time between faults (ms).
PAUSE_MS = (100.0, 1_500.0)
# Duration of a fault (ms), at most longer than a session.
HOLD_MS = (50.0, 5_000.0)
CLIENTS = (
    ("move", "mover-1"),
    ("move", "mover-2"),
    ("process", "processor"),
    ("read", "reader"),
    ("look", "looker"),
)


@dataclass(frozen=True)
class Style:
    """Actions with their frequencies."""

    # Probability of an action on a client and of a fault of the cluster, in each step.
    actions: float = 0.5
    faults: float = 0.4
    # Names of the methods to choose from; all if empty.
    chosen: tuple[str, ...] = ()
    # Names of the methods that are never chosen.
    left_out: tuple[str, ...] = ()
    # Milliseconds between two steps.
    pause_ms: tuple[float, float] = PAUSE_MS
    # Duration of a fault of the cluster, in milliseconds.
    hold_ms: tuple[float, float] = HOLD_MS
    clients: tuple[tuple[str, str], ...] = CLIENTS
    conditions: NetworkConditions = field(default_factory=NetworkConditions)
    # Level of the feature transaction.version.
    transaction_version: int = TRANSACTION_VERSION_MAX
    # Whether leaders ask the coordinator before the first batch of a transaction.
    is_verified: bool = True


# Processes pause, and wall clocks jump.
STALLED = (
    "_pause_node",
    "_pause_coordinator",
    "_pause_decider",
    "_jump_node_clock",
    "_jump_client_clock",
    "_freeze_client",
    "_revive_zombie",
    "_outlive_transaction",
)
# Records arrive after the end of their transaction.
LATE = ("_delay_batches",)
MIXED = Style(left_out=(*STALLED, *LATE))
EVERYTHING = Style()
# Clients with one transactional id follow each other closely.
FENCING = Style(
    actions=1.0,
    faults=0.0,
    chosen=("_double_client", "_pause_client", "_revive_zombie"),
    pause_ms=(5.0, 150.0),
)
# Brokers die in critical phases of transactions. There are no isolated former leaders.
KILLS = Style(
    actions=0.0,
    faults=1.0,
    chosen=("_kill_coordinator", "_kill_decider", "_kill_marked_leader", "_kill_group_coordinator"),
    pause_ms=(50.0, 300.0),
    hold_ms=(50.0, 1_000.0),
    clients=(
        *CLIENTS,
        ("move", "mover-3"),
        ("move", "mover-4"),
        ("look", "looker-2"),
        ("look", "looker-3"),
    ),
    conditions=NetworkConditions(delay_min_ms=1.0, delay_max_ms=5.0),
)
# Coordinators die between their response to a commit and its markers.
DECISIONS = replace(KILLS, chosen=("_kill_after_decision",))
# Leaders die while transactions are open.
LEADERS = replace(KILLS, chosen=("_kill_written_leader", "_kill_marked_leader"))
# Coordinators die or are isolated on a slow network, so that many decisions are pending.
COORDINATORS = replace(
    KILLS,
    chosen=("_kill_decider", "_isolate_coordinator", "_isolate_decider"),
    hold_ms=(1_500.0, 5_000.0),
    conditions=NetworkConditions(delay_min_ms=2.0, delay_max_ms=15.0),
)
# The group's coordinator is isolated from the cluster, not from clients.
ISOLATIONS = replace(
    KILLS,
    chosen=("_isolate_group_coordinator",),
    hold_ms=(1_500.0, 8_000.0),
)
# Connections end at any time.
RESETS = Style(
    actions=0.2,
    faults=0.8,
    chosen=("_reset_sender", "_reset_client", "_cut_client", "_kill_client"),
    pause_ms=(5.0, 200.0),
    hold_ms=(50.0, 2_500.0),
    conditions=NetworkConditions(delay_max_ms=5.0, reset_chance=0.002),
)
STALLS = Style(
    actions=0.4,
    faults=0.7,
    chosen=(*STALLED, "_leave_transaction"),
    pause_ms=(20.0, 600.0),
)
# Transactions exceed their timeout.
TIMEOUTS = Style(
    actions=1.0,
    faults=0.0,
    chosen=("_leave_transaction", "_outlive_transaction"),
    pause_ms=(20.0, 200.0),
)
# Older clients keep their epoch, so that leaders must verify transactions with the coordinator.
OLD = Style(
    actions=0.9,
    faults=0.2,
    chosen=("_delay_batches", "_kill_decider"),
    pause_ms=(20.0, 200.0),
    transaction_version=0,
)
# Leaders do not verify transactions. Only the epoch rejects batches of fenced producers.
UNVERIFIED = Style(
    actions=1.0,
    faults=0.0,
    chosen=("_revive_zombie",),
    pause_ms=(100.0, 500.0),
    transaction_version=1,
    is_verified=False,
)
# Leaders do not verify transactions, but add partitions to those of clients with new epochs.
ADDING = Style(
    actions=0.9,
    faults=0.2,
    chosen=("_kill_client", "_kill_decider"),
    pause_ms=(20.0, 200.0),
    is_verified=False,
)
STYLES = {
    "mixed": MIXED,
    "fencing": FENCING,
    "kills": KILLS,
    "decisions": DECISIONS,
    "leaders": LEADERS,
    "coordinators": COORDINATORS,
    "isolations": ISOLATIONS,
    "resets": RESETS,
    "stalls": STALLS,
    "timeouts": TIMEOUTS,
    "old": OLD,
    "unverified": UNVERIFIED,
    "adding": ADDING,
    "everything": EVERYTHING,
}
