"""Effects of transaction requests that `sequences_transactions` does not show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from differential.case import case
from differential.scene import exchange
from differential.transaction import (
    ADD,
    DESCRIBE,
    FETCH,
    MARKERS,
    PRODUCE,
    Transaction,
    compare_state,
    finish,
    initialize,
    new_transaction,
)

if TYPE_CHECKING:
    from differential.scene import Scene
    from differential.side import Side

EXPLICIT_VERSION, IMPLICIT_VERSION = 11, 13


@case(PRODUCE, (EXPLICIT_VERSION, IMPLICIT_VERSION))
def a_refused_batch_of_a_later_epoch_in_an_open_transaction(scene: Scene) -> None:
    transaction = new_transaction(scene)
    initialize(scene, transaction)
    scene.do(ADD, 3, transaction.add(0))
    scene.compare(transaction.produce())
    scene.compare(transaction.produce(delta=1))
    compare_state(scene, transaction)
    scene.label = "then"
    scene.compare(transaction.produce(sequence=1))
    compare_state(scene, transaction)
    scene.label = "the end"
    finish(scene, transaction)


@case(MARKERS, (2,))
def markers_without_a_transaction_version(scene: Scene) -> None:
    transaction = new_transaction(scene)
    initialize(scene, transaction)
    for later in (False, True):
        if later:
            # Now the partition has the producer, with a later epoch than the next markers.
            scene.compare(transaction.markers(0, 5, commit=True))
        for delta in (-2, -1, 0, 4, 5, 6):
            scene.compare(transaction.markers(0, delta, commit=True, version=-1))
            compare_state(scene, transaction)
    finish(scene, transaction)


@case(FETCH, (4, 12, 17))
def an_aborted_transaction_above_an_open_one(scene: Scene) -> None:
    aborting, open_one = new_transaction(scene), new_transaction(scene)
    assert aborting.topic == open_one.topic
    abort(scene, aborting)
    initialize(scene, open_one)
    scene.do(PRODUCE, IMPLICIT_VERSION, open_one.produce())
    abort(scene, aborting)
    for side in scene.pair.sides():
        side.remember("aborting producer", producer_of(side, aborting))
    scene.label = "above"
    scene.compare(aborting.fetch())
    scene.label = ""
    finish(scene, aborting)
    finish(scene, open_one)


def abort(scene: Scene, transaction: Transaction) -> None:
    """Produce a record; the next producer of the id aborts the transaction."""
    initialize(scene, transaction)
    scene.do(PRODUCE, IMPLICIT_VERSION, transaction.produce())
    initialize(scene, transaction)


def producer_of(side: Side, transaction: Transaction) -> int:
    """Return the producer id that the coordinator describes."""
    requested = {"transactional_ids": [transaction.id]}
    producer_id: int = exchange(side, DESCRIBE, 0, requested).transaction_states[0].producer_id
    return producer_id
