"""A migration under load: nodes change one at a time between Apache Kafka and Barnabas.

The load is that of the chaos campaign, with the Java client beside librdkafka and ours. There are
classic, consumer, share and streams groups, and transactions that are committed and aborted. After
each step the gates of docs/migration.md must open, and the rules of the operator must be the same.
The checkers of the campaign judge at the end.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from barnabas.client.facade import Client
from chaos.campaign import SETTINGS
from chaos.group_load import SETTINGS as GROUP_SETTINGS, GroupLoad
from chaos.judgment import judge, unexpected_errors
from chaos.load import Load, LoadOptions
from chaos.outcome import Outcome, commit_id, describe_machine
from chaos.stress import TOPIC, Stress, make_lasting_topics, make_topic
from chaos.transactional_load import TransactionalLoad, TransactionalOptions
from jvm.kafka_node import KafkaNode
from jvm.migrating_cluster import MigratingCluster, Shape
from jvm.migration_gates import carried, check_rules, pass_gates
from jvm.verifiable_clients import VerifiableClients
from waiting import eventually

PARTITIONS = 3
# Records per second of each of the two producers. The processors belong to six brokers.
RATE = 40
JAVA_TOPIC, RULES_TOPIC = "java", "rules"
# Six brokers and their clients share the processors, and each stop is a clean one. So no node is
# fenced, and no election begins, because a node is slow. A Kafka controller registers a restarted
# broker only after the session of the stopped one, so each step takes as long as a session.
PATIENT = {
    "broker.session.timeout.ms": "15000",
    # Brokers of Kafka wait for the controllers, which are formatted and started after them.
    "initial.broker.registration.timeout.ms": "600000",
    "controller.quorum.election.timeout.ms": "5000",
    "controller.quorum.election.backoff.max.ms": "3000",
    "controller.quorum.fetch.timeout.ms": "15000",
    "controller.quorum.request.timeout.ms": "10000",
}
# A limit for clients that make no progress. Java starts slowly on a busy machine.
WITHIN_S = 300.0


class Migration:
    """A cluster with its load.

    Args:
        shape: roles and version of the nodes.
        directory: an empty one.
    """

    def __init__(self, shape: Shape, directory: Path) -> None:
        self.shape = shape
        settings = SETTINGS | (GROUP_SETTINGS if shape.has_groups else {})
        settings |= PATIENT
        self.cluster = MigratingCluster(shape, directory / "cluster", settings)
        self.started = time.monotonic()
        self.steps: list[str] = []
        self._directory = directory
        self._open = ExitStack()

    def start(self) -> None:
        """Start Kafka on all nodes, and the load."""
        cluster = self.cluster
        self._open.callback(cluster.close)
        cluster.start(cluster.kafkas)
        cluster.make_rules()
        make_topic(cluster.cluster, PARTITIONS)
        make_lasting_topics(cluster.cluster, {JAVA_TOPIC: PARTITIONS, RULES_TOPIC: 1})
        options = LoadOptions(TOPIC, PARTITIONS, rate=RATE, keys=cluster.keys())
        load = Load(cluster.secure_bootstrap, options)
        self._open.callback(load.abandon)
        self.stress = Stress(cluster.cluster, None, load, random.Random(1), PARTITIONS)
        if self.shape.has_groups:
            groups = GroupLoad(self.stress.view, cluster.secure_bootstrap, options, load.errors)
            make_lasting_topics(cluster.cluster, groups.topics)
            self._open.callback(groups.abandon)
            groups.start()
            self.stress.groups = groups
        self._start_transactions()
        self.java = VerifiableClients(
            cluster.secure_bootstrap, cluster.java_file(), JAVA_TOPIC, self._directory / "java"
        )
        self._open.callback(self.java.close)
        load.start()
        self._await_load()
        with Client(cluster.bootstrap) as client:
            self._before = carried(client, sorted(self.stress.topics))
        self._note("Apache Kafka is all nodes")

    def _start_transactions(self) -> None:
        transactional = TransactionalLoad(
            self.cluster.bootstrap,
            self._directory / "journals",
            1,
            TransactionalOptions(input_partitions=2, rate=2.0, has_faults=False),
        )
        make_lasting_topics(self.cluster.cluster, transactional.topics)
        self._open.callback(transactional.abandon)
        transactional.start()
        self.stress.transactional = transactional

    def replace(self, node_id: int) -> None:
        """Replace a node by the other program, pass the gates, and check what carried over."""
        cluster, stress = self.cluster, self.stress
        stress.may_end.add(node_id)
        began = time.monotonic()
        cluster.replace(node_id)
        restarted = time.monotonic()
        stress.may_end.clear()
        pass_gates(cluster.bootstrap, stress.check_alive)
        opened = time.monotonic()
        with Client(cluster.bootstrap) as client:
            now = carried(client, sorted(stress.topics))
        for what, was in self._before.items():
            assert now[what] == was, f"{what} changed: {was} became {now[what]}"
        check_rules(cluster, RULES_TOPIC)
        self._await_load()
        stress.load.sample_commits()
        if stress.groups is not None:
            stress.groups.sample_commits()
        assert stress.transactional is not None
        stress.transactional.sample_offsets()
        # Else the next node may lead nothing, and its stop shows nothing.
        stress.balance()
        program = "Kafka" if isinstance(cluster.running[node_id], KafkaNode) else "Barnabas"
        self._note(
            f"{program} is node {node_id}: restarted in {restarted - began:.1f} s, "
            f"gates after {opened - restarted:.1f} s"
        )

    def _await_load(self) -> None:
        """Wait until all clients have done new work."""
        stress = self.stress
        transactional = stress.transactional
        assert transactional is not None
        stress.load.mark()
        transactional.mark()

        def waiting() -> list[str]:
            stress.check_alive()
            return stress.load.waiting() + transactional.waiting()

        eventually(
            lambda: not waiting(),
            lambda: f"{waiting()}\n{dict(stress.load.errors.counts)}\n{transactional.describe()}",
            WITHIN_S,
        )
        self.java.await_more()

    def _note(self, words: str) -> None:
        self.steps.append(f"{time.monotonic() - self.started:6.1f} s  {words}")
        print(self.steps[-1], flush=True)

    def finish(self) -> Outcome:
        """Stop the load, and judge all that the clients saw, and the files."""
        stress = self.stress
        outcome = Outcome({}, commit_id(), describe_machine(), "Apache Kafka and Barnabas")
        report = self.java.finish(self.cluster.keys(), self.cluster.secure_bootstrap, PARTITIONS)
        outcome.problems += report.problems
        judge(stress, outcome)
        outcome.errors = dict(stress.load.errors.counts)
        outcome.problems += unexpected_errors(stress.cluster)
        self._note(
            f"{outcome.records} records ({outcome.failed_sends} failed), {report.acknowledged} of "
            f"Java; {outcome.transactions}; {outcome.read_by_group} read by the classic group, "
            f"{outcome.read_by_modern_group} by the consumer group, "
            f"{outcome.delivered_to_share_group} by the share group, "
            f"{outcome.committed_by_streams_group} commits of the streams group"
        )
        self._note(f"errors of clients: {outcome.errors} {outcome.transactional_errors}")
        return outcome

    def close(self) -> None:
        """End all clients and nodes."""
        self._open.close()


@contextmanager
def migration(shape: Shape, directory: Path) -> Iterator[Migration]:
    """Start a migration; end all its processes."""
    made = Migration(shape, directory)
    try:
        made.start()
        yield made
    finally:
        made.close()


def there_and_back(made: Migration, nodes: Sequence[int]) -> Outcome:
    """Make nodes Barnabas, and in the reverse order Kafka again; then judge."""
    for node_id in (*nodes, *reversed(nodes)):
        made.replace(node_id)
    return made.finish()
