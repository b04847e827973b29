"""Moves of the topics of a link to the other cluster and back, while a node may be killed.

There: `links promote` with a transaction that is open in the source, then `links reverse`. Back:
`links failback`. A command that fails because a node was killed is repeated, as docs/links.md says.
"""

from __future__ import annotations

import time

from chaos.links.comparison import differences
from chaos.links.ledger import HangingTransaction
from chaos.links.link_stress import LINK, LinkStress, Side
from chaos.links.linked_load import LinkedLoad
from chaos.load import Worker
from chaos.stress import HEAL_TIMEOUT_S

# A node is killed within this time after the begin of a command.
_DISTURBED_WITHIN_S = 4.0


class _KilledNode(Worker):
    """Kills a random broker of a cluster while a command runs, and starts it again."""

    def __init__(self, side: Side, clusters: LinkStress) -> None:
        super().__init__("killer")
        self._node = clusters.rng.choice(side.cluster.brokers)
        self._stress = side.stress
        self._delay_s = clusters.rng.random() * _DISTURBED_WITHIN_S
        self._stress.may_end.add(self._node.node_id)
        self.start()

    def _run(self) -> None:
        time.sleep(self._delay_s)
        self._node.kill()
        self._node.start()

    def describe(self) -> str:
        """Wait until the node runs again; return what happened."""
        self.join()
        self._stress.may_end.discard(self._node.node_id)
        return f"node {self._node.node_id} killed after {self._delay_s:.1f} s"


def promote(clusters: LinkStress, load: LinkedLoad, *, disturbed: bool) -> HangingTransaction:
    """Promote the mirrors while a transaction is open in the source, and check what they have."""
    hanging = HangingTransaction(clusters.active.bootstrap, load.fates)
    load.stop()
    load.problems += differences(clusters)
    committed = load.group_offsets(clusters.active)
    _repeat(clusters, clusters.passive if disturbed else None, "promote", LINK)
    _check_offsets(clusters, load, clusters.passive, committed)
    load.problems += load.judge(clusters.passive)
    return hanging


def move_there(clusters: LinkStress, load: LinkedLoad) -> str:
    """Promote the mirrors, go on with them, and make the topics of the source mirrors."""
    hanging = promote(clusters, load, disturbed=clusters.rng.random() < 0.5)
    old, new = clusters.active, clusters.passive
    clusters.active, clusters.passive = new, old
    # Clients go on before the old source mirrors what they write.
    load.start()
    hanging.abort()
    disturbed = old if clusters.rng.random() < 0.5 else None
    _repeat(clusters, disturbed, "reverse", LINK, "--config", clusters.properties(new))
    return f"to the {new.name} cluster"


def move_back(clusters: LinkStress, load: LinkedLoad) -> str:
    """Fail back to the first cluster, and go on there."""
    load.stop()
    load.problems += differences(clusters)
    committed = load.group_offsets(clusters.active)
    disturbed = clusters.rng.choice([None, clusters.active, clusters.passive])
    _repeat(clusters, disturbed, "failback", LINK)
    _check_offsets(clusters, load, clusters.passive, committed)
    load.problems += load.judge(clusters.passive)
    clusters.active, clusters.passive = clusters.passive, clusters.active
    load.start()
    return f"to the {clusters.active.name} cluster"


def move(clusters: LinkStress, load: LinkedLoad) -> str:
    """Move the topics of the link to the cluster with the mirrors."""
    there = clusters.active is clusters.first
    return (move_there if there else move_back)(clusters, load)


def _check_offsets(
    clusters: LinkStress, load: LinkedLoad, side: Side, wanted: dict[int, int]
) -> None:
    found = load.group_offsets(side)
    if found != wanted:
        load.problems.append(f"offsets of the group in the {side.name}: {found} for {wanted}")


def _repeat(clusters: LinkStress, disturbed: Side | None, *words: str) -> None:
    """Run a command of links until it succeeds; only a killed node may let it fail."""
    killed = None if disturbed is None else _KilledNode(disturbed, clusters)
    deadline = time.monotonic() + HEAL_TIMEOUT_S
    while True:
        done = clusters.shell.run_in_process("links", *words)
        if killed is not None:
            assert disturbed is not None
            clusters.notes.append(f"{words[0]}: {disturbed.name} cluster, {killed.describe()}")
        elif done.returncode:
            is_expected = disturbed is not None and time.monotonic() < deadline
            assert is_expected, f"{words}: {done.stderr}\n{done.stdout}"
        if not done.returncode:
            break
        clusters.notes.append(f"{words[0]} repeated after: {done.stderr.strip()}")
        killed = None
        time.sleep(1.0)
    if disturbed is not None:
        disturbed.stress.await_full_isr()
