"""Effects of one request of a transaction on others that no sequence of the table shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from differential.case import case
from differential.scene import ask
from differential.transaction import (
    ADD,
    DESCRIBE,
    FETCH,
    MARKERS,
    PRODUCE,
    Transaction,
    finish,
    initialize,
    look,
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
    look(scene, transaction)
    scene.label = "then"
    scene.compare(transaction.produce(sequence=1))
    look(scene, transaction)
    scene.label = "the end"
    finish(scene, transaction)


@case(MARKERS, (2,))
def markers_without_a_transaction_version(scene: Scene) -> None:
    transaction = new_transaction(scene)
    initialize(scene, transaction)
    for later in (False, True):
        if later:
            # Now the partition knows the producer, with a later epoch than the next markers have.
            scene.compare(transaction.markers(0, 5, commit=True))
        for delta in (-2, -1, 0, 4, 5, 6):
            scene.compare(transaction.markers(0, delta, commit=True, version=-1))
            look(scene, transaction)
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
    """Produce, and let the next producer of the id abort it."""
    initialize(scene, transaction)
    scene.do(PRODUCE, IMPLICIT_VERSION, transaction.produce())
    initialize(scene, transaction)


def producer_of(side: Side, transaction: Transaction) -> int:
    """The producer id that the coordinator tells."""
    asked = {"transactional_ids": [transaction.id]}
    producer_id: int = ask(side, DESCRIBE, 0, asked).transaction_states[0].producer_id
    return producer_id
