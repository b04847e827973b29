"""`make chaos`: random faults under load, each healed, and a verdict on all that clients saw.

python -m chaos.campaign --minutes 30 --seed 7 --result docs/chaos-barnabas.json

Prints a line per fault and, at the end, the table of faults for docs/reliability.md and
docs/lab/chaos.md; with --kafka it runs against Apache Kafka. The same seed selects the same faults;
their effects differ between runs.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from barnabas.testing.broker_process import BrokerStartError
from barnabas.testing.cluster_process import ClusterProcess
from barnabas.testing.relays import Relays
from buckets.bucket import moto_bucket
from chaos.certificate_faults import CERTIFICATE_FAULTS
from chaos.chaos_node import ChaosNode
from chaos.cluster_view import await_that
from chaos.faults import FAULTS, Fault
from chaos.group_load import SETTINGS as GROUP_SETTINGS, GroupLoad
from chaos.judgment import judge, long_turns, unexpected_errors, watched_clients
from chaos.load import Load, LoadOptions
from chaos.outcome import Event, Outcome, commit_id, describe_machine, summary, table
from chaos.side.changing_topics import GrowingTopicLoad, RecreatedTopicLoad
from chaos.side.conversions import ConversionLoad, OldClientLoad
from chaos.side.side_load import SideLoad, SideOptions
from chaos.side.staged_offsets import StagedOffsetsLoad
from chaos.side.upkeep import AdminLoad, CompactedLoad, TelemetryLoad
from chaos.storage_faults import STORAGE_FAULTS
from chaos.stress import (
    HEAL_TIMEOUT_S,
    TOPIC,
    Stress,
    make_hostile_topic,
    make_lasting_topics,
    make_topic,
)
from chaos.supervised_nodes import ClusterOfNodes
from chaos.tier.tier_faults import TIER_FAULTS
from chaos.tier.tier_loads import TIER_LOADS, ExpiringLoad
from chaos.tier.tier_store import ChaosDirectory, ChaosTier
from chaos.transactional_load import TransactionalLoad, TransactionalOptions
from conformance.tls_cluster import TlsFiles
from jvm.kafka_node import KafkaNode
from machines import ClusterOnMachines

SIDE_LOADS: dict[str, type[SideLoad]] = {
    each.name: each
    for each in (
        ConversionLoad,
        OldClientLoad,
        StagedOffsetsLoad,
        RecreatedTopicLoad,
        GrowingTopicLoad,
        CompactedLoad,
        AdminLoad,
        TelemetryLoad,
    )
}
ALL_FAULTS = (*FAULTS, *STORAGE_FAULTS, *CERTIFICATE_FAULTS, *TIER_FAULTS)
ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    # How often coordinators search for transactions that have exceeded their timeout.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "auto.create.topics.enable": "false",
    # The campaign elects preferred leaders itself.
    "auto.leader.rebalance.enable": "false",
    # With a wrong clock, retention deletes immediately and not after five minutes.
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
}
# CPU time that one turn of a node's event loop may take.
TURN_CPU_MS_MAX = 250.0
# All nodes start at the same time, on a machine that may be busy.
START_TIMEOUT_S = 300.0
# Maximum duration of a fault after the load has resumed.
HOLD_S = 2.0


@dataclass(frozen=True)
class Options:
    """The options of a campaign."""

    seconds: float
    seed: int
    kafka: bool = False
    brokers: int = 3
    controllers: int = 0
    partitions: int = 6
    # Records per second of each of the two producers.
    rate: int = 300
    # Names of the faults to choose from; all if empty.
    faults: tuple[str, ...] = ()
    # Whether connections between nodes pass through relays, which can cut links.
    relays: bool = True
    settings: tuple[tuple[str, str], ...] = ()
    # Whether members of a consumer, a share and a streams group run beside the load.
    has_groups: bool = False
    # Transactional clients beside the load; None for none.
    transactional: TransactionalOptions | None = None
    # Of the topic of the load.
    segment_bytes: int = 1 << 20
    # Names of side loads (`SIDE_LOADS`).
    sides: tuple[str, ...] = ()
    # Whether all listeners have TLS. There are no transactional clients then.
    tls: bool = False
    # Whether brokers and controllers are spread over three machines.
    machines: bool = False
    # Whether each machine has a supervisor with two brokers and a controller; needs `machines`.
    supervised: bool = False
    # Whether the topics of the loads have a remote tier, with side loads that read from it.
    has_tier: bool = False
    # Whether the tier is a bucket of `moto`, and not a directory.
    has_bucket: bool = False


def run(options: Options, directory: Path, report: Any = print) -> Outcome:
    """Run a campaign against a separate cluster."""
    outcome = Outcome(
        options=asdict(options),
        commit=commit_id(),
        machine=describe_machine(),
        server="Apache Kafka 4.4.0" if options.kafka else "Barnabas",
    )
    with watched_clients() as dropped, stressed(options, directory) as stress:
        started = time.monotonic()
        try:
            _do_faults(stress, options, outcome, report)
        except (AssertionError, BrokerStartError) as error:
            outcome.problems.append(f"{error}\n{stress.cluster.log()}")
        outcome.seconds = time.monotonic() - started
        outcome.errors = dict(stress.load.errors.counts.most_common())
        if not outcome.problems:
            judge(stress, outcome)
        outcome.problems += unexpected_errors(stress.cluster) + dropped()
        outcome.long_turns = long_turns(stress.cluster)
        outcome.longest_turn_cpu_ms = stress.longest_turn_cpu_ms
        if stress.longest_turn_cpu_ms > TURN_CPU_MS_MAX:
            description = f"a turn took {stress.longest_turn_cpu_ms:.0f} ms of CPU time"
            outcome.problems.append("\n".join([description, *outcome.long_turns]))
    return outcome


def _made_cluster(
    options: Options, directory: Path, settings: dict[str, str], relays: Relays | None
) -> ClusterProcess:
    if options.supervised:
        assert options.machines
        return ClusterOfNodes(directory, settings)
    cluster = (ClusterOnMachines if options.machines else ClusterProcess)(
        options.brokers,
        options.controllers,
        directory,
        settings,
        relays,
        KafkaNode if options.kafka else ChaosNode,
    )
    if options.machines and options.kafka:
        # Controllers of Apache Kafka know racks, not machines.
        for node in cluster.nodes.values():
            node.settings["broker.rack"] = cluster.host_of(node.node_id)
    return cluster


@contextmanager
def stressed(options: Options, directory: Path) -> Iterator[Stress]:
    relays = Relays() if options.relays else None
    tls = TlsFiles(directory / "certificates") if options.tls else None
    sides = [SIDE_LOADS[name] for name in options.sides]
    cleanup = ExitStack()
    tier = _made_tier(options, directory, cleanup) if options.has_tier else None
    if tier is not None:
        sides += TIER_LOADS
    settings = _settings_of(options, tls, tier, sides)
    keys = {} if tls is None else tls.librdkafka()
    cluster = _made_cluster(options, directory, settings, relays)
    if relays is not None:
        relays.pids = lambda: {n: x.pid for n, x in cluster.nodes.items() if x.is_running}
    load: Load | None = None
    stress: Stress | None = None
    try:
        cluster.start(START_TIMEOUT_S)
        configs = {"segment.bytes": str(options.segment_bytes)}
        make_topic(
            cluster, options.partitions, tls=tls, configs=configs | tiered_configs(tier, TOPIC)
        )
        make_hostile_topic(cluster, tls)
        load_options = LoadOptions(TOPIC, options.partitions, rate=options.rate, keys=keys)
        load = Load(cluster.bootstrap, load_options)
        stress = Stress(cluster, relays, load, random.Random(options.seed), options.partitions, tls)
        stress.tier = tier
        stress.await_full_isr()
        if options.has_groups:
            stress.groups = GroupLoad(stress.view, cluster.bootstrap, load_options, load.errors)
            made = stress.groups.topics
            make_lasting_topics(cluster, made, tls, tiered_configs(tier, *made))
            stress.groups.start()
        stress.sides = start_sides(stress, sides, options.seed)
        if tier is not None:
            tier.topics.add(ExpiringLoad.TOPIC)
        if options.transactional is not None:
            _start_transactions(stress, options, directory)
        load.start()
        load.mark()
        await_that(load.waiting, lambda found: not found, HEAL_TIMEOUT_S, "the load")
        yield stress
    finally:
        if load is not None:
            load.abandon()
        if stress is not None and stress.groups is not None:
            stress.groups.abandon()
        for side in stress.sides if stress is not None else ():
            side.stop()
        if stress is not None and stress.transactional is not None:
            stress.transactional.abandon()
        cluster.close()
        if relays is not None:
            relays.close()
        cleanup.close()


def _settings_of(
    options: Options,
    tls: TlsFiles | None,
    tier: ChaosTier | None,
    sides: Sequence[type[SideLoad]],
) -> dict[str, str]:
    """Return the keys of all nodes."""
    settings = {**SETTINGS, **(GROUP_SETTINGS if options.has_groups else {})}
    if tier is not None:
        assert not options.kafka, "Apache Kafka has no such store"
        settings |= tier.settings
    for side in sides:
        settings |= side.settings
    settings |= dict(options.settings)
    if tls is not None:
        assert options.transactional is None, "transactional clients have no TLS"
        assert not sides, "side loads have no TLS"
        protocols = "PLAINTEXT:SSL,CONTROLLER:SSL,REPLICATION:SSL"
        settings |= {**tls.settings(), "listener.security.protocol.map": protocols}
        settings["ssl.client.auth"] = "required"
    return settings


def _made_tier(options: Options, directory: Path, cleanup: ExitStack) -> ChaosTier:
    """Return a tier in a directory, or in a bucket whose server ends with `cleanup`."""
    if not options.has_bucket:
        return ChaosTier(ChaosDirectory(directory / "tier"))
    return ChaosTier(cleanup.enter_context(moto_bucket()))


def tiered_configs(tier: ChaosTier | None, *topics: str) -> dict[str, str]:
    """Return the configs of topics that have a tier if the campaign has one."""
    return {} if tier is None else tier.configs_of(*topics)


def start_sides(stress: Stress, kinds: Sequence[type[SideLoad]], seed: int) -> list[SideLoad]:
    """Create the topics of side loads, and start them."""
    options = SideOptions(stress.view, stress.cluster.bootstrap, seed, stress.load.errors)
    sides = [kind(options) for kind in kinds]
    for side in sides:
        for name, shape in side.topics.items():
            make_lasting_topics(stress.cluster, {name: shape.partitions}, configs=shape.configs)
        side.start()
    return sides


def _start_transactions(stress: Stress, options: Options, directory: Path) -> None:
    """Start transactional clients, and wait until they work."""
    assert options.transactional is not None
    transactional = TransactionalLoad(
        stress.cluster.bootstrap, directory / "journals", options.seed, options.transactional
    )
    topics = transactional.topics
    make_lasting_topics(stress.cluster, topics, configs=tiered_configs(stress.tier, *topics))
    stress.transactional = transactional
    transactional.start()
    await_transactions(stress)
    transactional.begin_faults()
    stress.await_full_isr()


def await_transactions(stress: Stress) -> None:
    """Wait until transactional clients of each kind have committed a new transaction."""
    transactional = stress.transactional
    if transactional is None:
        return
    transactional.mark()
    try:
        await_that(
            lambda: (stress.check_alive(), transactional.waiting())[1],
            lambda waiting: not waiting,
            HEAL_TIMEOUT_S,
            "transactions",
        )
    except AssertionError as error:
        raise AssertionError(f"{error}\n{transactional.describe()}") from error


def _do_faults(stress: Stress, options: Options, outcome: Outcome, report: Any) -> None:
    chosen = [
        fault
        for fault in ALL_FAULTS
        if (not options.faults or fault.name in options.faults)
        and (options.relays or not fault.needs_relays)
        and not (options.kafka and fault.needs_injection)
        and (options.tls or not fault.needs_tls)
        and (options.machines or not fault.needs_machines)
        and (options.supervised or not fault.needs_supervisors)
        and (options.has_tier or not fault.needs_tier)
        and not (fault.damages_segments and options.has_tier)
        and not (fault.moves_clocks and StagedOffsetsLoad.name in options.sides)
    ]
    assert chosen, f"no such faults: {options.faults}"
    began = time.monotonic()
    while (at := time.monotonic() - began) < options.seconds:
        fault = stress.rng.choices(chosen, [each.weight for each in chosen])[0]
        event = _do(stress, fault, at)
        outcome.events.append(event)
        report(
            f"{event.at:7.1f} s  {event.name}: {event.detail}; next ack after "
            f"{event.recovery:.2f} s, all in sync {event.in_sync:.1f} s after healing, "
            f"{event.elections} elections, {event.controller_elections} of controllers, "
            f"{event.errors} errors, {event.failed_sends} failed sends"
        )


def _do(stress: Stress, fault: Fault, at: float) -> Event:
    load = stress.load
    before, controller_before = stress.state()
    errors_before, failures_before = load.errors.total(), load.failures()
    began = time.monotonic()
    detail = fault.do(stress)
    # Mark after the fault: a record sent before it may still be acknowledged after it.
    load.mark()
    await_that(
        lambda: (stress.check_alive(), load.waiting())[1],
        lambda waiting: not waiting,
        HEAL_TIMEOUT_S,
        f"{fault.name} ({detail}): acknowledgements in all partitions",
    )
    recovered = load.recovered()
    assert recovered is not None
    time.sleep(stress.rng.random() * HOLD_S)
    healing = time.monotonic()
    stress.heal()
    stress.await_full_isr()
    stress.finish_healing()
    in_sync = time.monotonic() - healing
    load.mark()
    await_that(load.waiting, lambda found: not found, HEAL_TIMEOUT_S, "the load after healing")
    await_transactions(stress)
    stress.check_alive()
    load.sample_commits()
    if stress.groups is not None:
        stress.groups.sample_commits()
    if stress.transactional is not None:
        stress.transactional.sample_offsets()
    stress.sample_turns()
    after, controller_after = stress.state()
    stress.balance()
    return Event(
        name=fault.name,
        detail="; ".join([detail, *stress.pop_notes()]),
        at=at,
        recovery=max(recovered) - began,
        recovery_median=statistics.median(recovered) - began,
        in_sync=in_sync,
        elections=sum(
            after[number].leader_epoch - view.leader_epoch for number, view in before.items()
        ),
        controller_elections=controller_after[1] - controller_before[1],
        errors=load.errors.total() - errors_before,
        failed_sends=load.failures() - failures_before,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka instead of ours")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--controllers", type=int, default=0)
    parser.add_argument("--machines", action="store_true", help="spread over three machines")
    parser.add_argument("--supervised", action="store_true", help="a node on each machine")
    parser.add_argument("--no-relays", action="store_true")
    parser.add_argument("--fault", action="append", default=[], help="only these; repeated")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--no-transactions", action="store_true")
    parser.add_argument("--groups", action="store_true", help="members of all protocols")
    parser.add_argument("--side", action="append", default=[], help='a side load, or "all"')
    parser.add_argument("--tier", action="store_true", help="the topics have a remote tier")
    parser.add_argument("--bucket", action="store_true", help="a tier in a bucket of moto")
    parser.add_argument("--tls", action="store_true", help="TLS on all listeners")
    parser.add_argument("--rate", type=int, default=300, help="records/s of each producer")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="data directories, on a problem")
    parser.add_argument("--result", type=Path, help="write JSON there, and a table beside it")
    given = parser.parse_args()
    options = Options(
        seconds=given.minutes * 60,
        seed=random.SystemRandom().randrange(1 << 30) if given.seed is None else given.seed,
        kafka=given.kafka,
        brokers=given.brokers,
        controllers=given.controllers,
        rate=given.rate,
        faults=tuple(given.fault),
        relays=not given.no_relays,
        settings=tuple(tuple(each.split("=", 1)) for each in given.set),
        tls=given.tls,
        machines=given.machines or given.supervised,
        supervised=given.supervised,
    )
    sides = tuple(SIDE_LOADS) if "all" in given.side else tuple(given.side)
    options = replace(options, has_groups=given.groups, sides=sides)
    has_tier = given.tier or given.bucket
    options = replace(options, has_tier=has_tier, has_bucket=given.bucket)
    if not given.no_transactions and not given.tls:
        options = replace(options, transactional=TransactionalOptions())
    # The end of the campaign also ends its processes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"seed {options.seed}", flush=True)
    outcome = run_in_new_directory(run, options, given.keep)
    print(f"\n{summary(outcome)}\n\n{table(outcome)}", flush=True)
    errors = [f"{count} x {error}" for error, count in outcome.transactional_errors.items()]
    for part in (*outcome.long_turns, outcome.evidence, *errors):
        print(part, flush=True)
    if given.result is not None:
        given.result.write_text(json.dumps(asdict(outcome), indent=1) + "\n")
        given.result.with_suffix(".md").write_text(f"{summary(outcome)}\n\n{table(outcome)}\n")
    sys.exit(bool(outcome.problems))


def run_in_new_directory(
    run: Callable[[Options, Path, Any], Outcome], options: Options, keep: Path | None
) -> Outcome:
    """Run a campaign; keep its directory below `keep` only if there was a problem."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=f"chaos-{options.seed}-", dir=keep))
    is_kept = keep is not None
    try:
        outcome = run(options, directory, lambda line: print(line, flush=True))
        is_kept = is_kept and bool(outcome.problems)
    finally:
        if not is_kept:
            shutil.rmtree(directory, ignore_errors=True)
    if is_kept:
        (directory / "outcome.json").write_text(json.dumps(asdict(outcome), indent=1) + "\n")
        print(f"the directories of all nodes are kept in {directory}", flush=True)
    return outcome


if __name__ == "__main__":
    main()
