"""Targets of faults in critical phases of a transaction: nodes and clients.

Each method advances time until a client is in the wanted phase of its transaction. A fault at a
random time rarely hits, for example, a coordinator between its decision and the markers, because
this phase lasts only some milliseconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from chaos.transactional.history import Result, Transaction
from simulation.cluster_world import NODES
from simulation.transactions.transactional_world import (
    GROUP,
    OFFSETS,
    Client,
    Phase,
    TransactionalWorld,
)

# Time limit (ms) of the wait for a phase, because all clients may be blocked.
WAIT_MS = 1_000.0
# Time between a client's request and the fault (ms): a decision, its markers and the records of
# both take from five milliseconds to a hundred.
AFTER_REQUEST_MS = ((0.0, 8.0), (0.0, 60.0))
# Time between a client's response and the fault (ms), while markers are being sent.
AFTER_RESPONSE_MS = (0.0, 2.0)
# Number of transactions after which a client has connections to most leaders.
CONNECTED_AFTER = 6


class Targets:
    """Finds targets of faults.

    Args:
        world: the cluster and the clients.
        rng: draws times, and one of several targets.
    """

    def __init__(self, world: TransactionalWorld, rng: random.Random) -> None:
        self._world = world
        self._rng = rng

    # Nodes.

    def coordinator(self) -> int:
        """Return the coordinator of a transactional id, at any time."""
        return self._or_random_node(
            self._world.coordinator(self._rng.choice(self._producers()).name)
        )

    def deciding_coordinator(self) -> int:
        """Return the coordinator of a transaction shortly after its commit was requested."""
        client, _ = self._await_phase(Phase.COMMITTING)
        self._let_request_pass()
        return self._or_random_node(self._world.coordinator(client.name))

    def decided_coordinator(self) -> tuple[Client, int]:
        """Return a client that has just received a commit response, and its coordinator."""
        client, made = self._await_phase(Phase.COMMITTING)
        if made is not None:
            self._world.await_that(lambda: made.result is Result.COMMITTED, WAIT_MS)
        self._world.run_for(self._rng.uniform(*AFTER_RESPONSE_MS))
        return client, self._or_random_node(self._world.coordinator(client.name))

    def marked_leader(self) -> int:
        """Return the leader of a partition whose marker is probably not written yet."""
        _, made = self._await_phase(self._rng.choice((Phase.COMMITTING, Phase.ABORTING)))
        self._let_request_pass()
        return self._or_random_node(-1 if made is None else self._leader_of(made))

    def written_leader(self) -> int:
        """Return the leader of a partition that has records of an open transaction."""
        _, made = self._await_phase(Phase.SENDING)
        self._let_request_pass()
        return self._or_random_node(-1 if made is None else self._leader_of(made))

    def group_coordinator(self) -> int:
        """Return the coordinator of the group, while a transaction writes or ends its offsets."""
        phase = self._rng.choice((Phase.SENDING_OFFSETS, Phase.COMMITTING))
        self._await(lambda client: client.role == "process" and client.phase is phase)
        self._let_request_pass()
        return self._or_random_node(self._world.coordinator(GROUP, OFFSETS))

    # Clients.

    def producer(self) -> Client:
        """Return a client with a transactional id, at any time."""
        return self._rng.choice(self._producers())

    def beginning_producer(self) -> Client:
        """Return a client that has just begun a transaction, and is connected to the leaders."""
        return self._await(
            lambda client: client.phase is Phase.SENDING and client.begun >= CONNECTED_AFTER
        )[0]

    def client_about_to_abort(self) -> Client:
        """Return a client that will abort its new transaction before records are acknowledged."""
        client, before = self._await(
            lambda client: (
                client.role == "move"
                and client.phase is Phase.IDLE
                and client.begun >= CONNECTED_AFTER
            )
        )
        client.must_abort = client.role == "move"
        self._world.await_that(
            lambda: client.current is not before and client.phase is Phase.SENDING, WAIT_MS
        )
        return client

    # Waiting.

    def await_transaction(self, client: Client) -> None:
        """Wait until a client begins another transaction, so that its connections exist."""
        self._world.await_that(lambda: client.begun >= 2 and client.phase is Phase.SENDING, WAIT_MS)

    def _producers(self) -> list[Client]:
        return [each for each in self._world.clients if each.role in ("move", "process")]

    def _await_phase(self, phase: Phase) -> tuple[Client, Transaction | None]:
        return self._await(lambda client: client.phase is phase)

    def _await(self, is_right: Callable[[Client], bool]) -> tuple[Client, Transaction | None]:
        """Wait for a client to begin the wanted phase. Return any client after the limit."""
        producers = self._producers()
        before = {client.instance: (client.current, client.phase) for client in producers}

        def found() -> list[Client]:
            return [
                client
                for client in producers
                if is_right(client) and (client.current, client.phase) != before[client.instance]
            ]

        self._world.await_that(lambda: bool(found()), WAIT_MS)
        client = self._rng.choice(found() or producers)
        return client, client.current

    def _let_request_pass(self) -> None:
        self._world.run_for(self._rng.uniform(*self._rng.choice(AFTER_REQUEST_MS)))

    def _leader_of(self, made: Transaction) -> int:
        return self._world.leader(self._rng.choice(made.places))

    def _or_random_node(self, node: int) -> int:
        return node if node >= 0 else self._rng.choice(NODES)
