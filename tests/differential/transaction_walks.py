"""Random requests of two transactional ids, compared step by step on both brokers.

Each id has two producers, so that sometimes one of them is fenced. A walk depends only on a seed
and its number, so that each difference is reproducible:

    make transaction-walks WALKS="--seed 7 --count 500"
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.protocol.errors import ErrorCode
from differential.broker_pair import started_pair
from differential.response import flatten
from differential.scene import Scene
from differential.transaction import (
    ADD,
    ADD_OFFSETS,
    COMMIT_OFFSETS,
    DELETE_GROUPS,
    END,
    INIT,
    MARKERS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    PARTITIONS,
    PRODUCE,
    Transaction,
    compare_state,
    settle,
)
from jvm.maven import class_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from barnabas.protocol.api_table import ApiKey
    from differential.request import Values
    from differential.scene import Pair
    from differential.side import Side

    Build = Values | Callable[[Side], Values]

IDS, PRODUCERS_OF_ID = 2, 2
STEPS = 25
# Operations, the frequency of each, and the versions that differ in their effects.
OPERATIONS: dict[str, tuple[int, tuple[int, ...]]] = {
    "initialize": (2, (2, 4, 5)),
    "continue": (1, (3, 4, 5)),
    "add": (2, (0, 3, 5)),
    "add offsets": (1, (0, 3, 4)),
    "commit offset": (2, (3, 4, 5)),
    "commit outside": (1, (8,)),
    "delete offset": (1, (0,)),
    "delete group": (1, (2,)),
    "produce": (6, (11, 12, 13)),
    "produce a gap": (1, (11, 13)),
    "commit": (2, (1, 3, 4, 5)),
    "abort": (2, (1, 3, 4, 5)),
    "verify": (1, (4, 5)),
    "write marker": (1, (1,)),
}
# The last versions of clients without transaction version 2. Later versions of AddPartitionsToTxn
# are for brokers.
OLD = {"add": 3, "commit offset": 4, "produce": 11, "produce a gap": 11, "commit": 4, "abort": 4}
# The epoch of a request relative to the producer's epoch, mostly 0.
DELTAS = (0, 0, 0, 0, 0, 0, 0, 0, -1, 1)
# Writes never have a later epoch. After such a batch, Kafka refuses the producer's own batches
# (`known_differences`). After such a marker, no marker of the coordinator is accepted, and the
# transaction never completes.
DELTAS_OF_BATCHES = (0, 0, 0, 0, 0, 0, 0, 0, -1)
WRITES = ("produce", "produce a gap", "write marker")
# The first version of EndTxn that returns a new epoch.
BUMPS_SINCE = 5


class Step(NamedTuple):
    """One request: the operation, the producer, the version, and the change of its epoch."""

    operation: str
    producer: int
    version: int
    delta: int
    partition: int

    def __str__(self) -> str:
        transactional_id, producer = divmod(self.producer, PRODUCERS_OF_ID)
        return (
            f"{self.operation} v{self.version} id={transactional_id} producer={producer} "
            f"epoch{self.delta:+d} partition={self.partition}"
        )


def random_steps(seed: str, count: int = STEPS, *, of_old_clients: bool = False) -> list[Step]:
    """Return the steps of a walk of clients of all versions, or only of old clients."""
    chance = random.Random(seed)
    names = list(OPERATIONS)
    weights = [weight for weight, _ in OPERATIONS.values()]
    # Initialize the first producer of each id.
    steps = [Step("initialize", each * PRODUCERS_OF_ID, 4, 0, 0) for each in range(IDS)]
    while len(steps) < count:
        (operation,) = chance.choices(names, weights)
        producer = chance.randrange(IDS * PRODUCERS_OF_ID)
        # All clients of an id are of one kind, and those of the last id are old: until the first
        # record, Kafka infers the kind of a producer from its first request.
        is_old = of_old_clients or producer >= (IDS - 1) * PRODUCERS_OF_ID
        versions = _versions(operation, is_old=is_old)
        deltas = DELTAS_OF_BATCHES if operation in WRITES else DELTAS
        partition = chance.choice(PARTITIONS)
        steps.append(
            Step(operation, producer, chance.choice(versions), chance.choice(deltas), partition)
        )
    return steps


def _versions(operation: str, *, is_old: bool) -> list[int]:
    _, versions = OPERATIONS[operation]
    newest = OLD.get(operation)
    if newest is None:
        return list(versions)
    return [version for version in versions if (version <= newest) == is_old]


@dataclass
class _Producer:
    """The id and epoch that a producer uses."""

    transaction: Transaction
    # The name of its producer id on both sides.
    name: str
    epoch: int = -1
    # The next sequence number by partition.
    sequences: dict[int, int] = field(default_factory=dict)


class Walk:
    """One walk on both brokers."""

    def __init__(self, pair: Pair, seed: str, scene: Scene | None = None) -> None:
        """Create the transactional ids and the topic.

        Args:
            pair: both brokers.
            seed: names the walk.
            scene: a scene that several walks share; a new scene if None.
        """
        self._seed = seed
        self._scene = scene or Scene(pair, END, f"walk-{seed}", 4)
        topic = self._scene.topic(len(PARTITIONS))
        self.transactions = []
        for number in range(IDS):
            pair.transactions += 1
            name = f"walk-{pair.transactions}-{number}"
            made = Transaction(name, topic, f"group-of-{name}", (0,) * len(PARTITIONS))
            self.transactions.append(made)
        self._scene.producer("unknown producer")
        self._producers = [
            _Producer(self.transactions[number // PRODUCERS_OF_ID], "unknown producer")
            for number in range(IDS * PRODUCERS_OF_ID)
        ]
        self._names = 0

    def play(self, steps: Iterable[Step]) -> list[str]:
        """Return the differences of the first step that has any, or of the end."""
        return self.go(steps) or self.end()

    def go(self, steps: Iterable[Step]) -> list[str]:
        """Return the differences of the first step that has any."""
        for number, step in enumerate(steps):
            self._scene.label = f"step {number} ({step})"
            self._play(step)
            for transaction in self.transactions:
                compare_state(self._scene, transaction)
            found = list(self._scene.unexpected({}, set()))
            if found:
                return found
        return []

    def end(self) -> list[str]:
        """Return the differences after the next producers of the ids begin."""
        for transaction in self.transactions:
            self._scene.label = f"the end of {transaction.id}"
            for _ in range(2):
                self._scene.compare(transaction.init(), INIT, 4)
                settle(self._scene, transaction)
            compare_state(self._scene, transaction)
        return list(self._scene.unexpected({}, set()))

    def _play(self, step: Step) -> None:
        producer = self._producers[step.producer]
        transaction = producer.transaction
        # The builders of requests use this epoch.
        transaction.epoch = producer.epoch
        api, build = self._request(step, producer)
        responses = self._scene.compare(build, api, step.version)
        settle(self._scene, transaction)
        if not _is_accepted(responses[0], step.version, self._scene.pair.kafka):
            return
        if api is INIT or (api is END and step.version >= BUMPS_SINCE):
            self._take_identity(producer, responses)
        elif step.operation == "produce" and step.delta == 0:
            producer.sequences[step.partition] = producer.sequences.get(step.partition, 0) + 1

    def _request(self, step: Step, producer: _Producer) -> tuple[ApiKey, Build]:
        transaction, name, delta = producer.transaction, producer.name, step.delta
        match step.operation:
            case "initialize":
                return INIT, transaction.init()
            case "continue":
                return INIT, transaction.continue_producer(delta, name)
            case "add":
                return ADD, transaction.add(step.partition, delta=delta, producer=name)
            case "add offsets":
                return ADD_OFFSETS, transaction.add_offsets(delta, name)
            case "commit offset":
                return COMMIT_OFFSETS, transaction.commit_offset(delta, name)
            case "commit outside":
                return OFFSET_COMMIT, transaction.commit_outside()
            case "delete offset":
                return OFFSET_DELETE, transaction.delete_offset()
            case "delete group":
                return DELETE_GROUPS, {"groups_names": [transaction.group]}
            case "commit" | "abort":
                is_commit = step.operation == "commit"
                return END, transaction.end(delta, name, commit=is_commit)
            case "verify":
                return ADD, transaction.add(0, 1, delta=delta, producer=name, verify=True)
            case "write marker":
                is_commit = step.partition == 1
                return MARKERS, transaction.markers(0, delta, producer=name, commit=is_commit)
            case "produce" | "produce a gap":
                sequence = producer.sequences.get(step.partition, 0) if delta == 0 else 0
                if step.operation != "produce":
                    sequence += 3
                return PRODUCE, transaction.produce(step.partition, delta, sequence, producer=name)
        raise AssertionError(step)

    def _take_identity(self, producer: _Producer, responses: tuple[Any, Any]) -> None:
        """Store the producer id and epoch that both brokers returned."""
        kafka, ours = responses
        if ours is None or ours.error_code:
            return
        known = self._scene.pair.kafka.name_of(kafka.producer_id)
        if known is kafka.producer_id:
            self._names += 1
            name = f"producer {self._names} of {self._seed}"
            self._scene.remember(name, kafka.producer_id, ours.producer_id)
        else:
            name = str(known)[1:-1]
        if (name, kafka.producer_epoch) != (producer.name, producer.epoch):
            producer.sequences.clear()
        producer.name, producer.epoch = name, kafka.producer_epoch


def _is_accepted(response: Any, version: int, side: Side) -> bool:
    fields = flatten(response, version, side).items()
    codes = [value for path, value in fields if path.endswith("error_code")]
    return all(code == ErrorCode.NONE for code in codes)


def fewest(pair: Pair, seed: str, steps: Sequence[Step]) -> tuple[list[Step], list[str]]:
    """Remove steps as long as the walk still shows a difference."""
    left = list(steps)
    found = Walk(pair, f"{seed}-again").play(left)
    if not found:
        return left, ["(not reproducible)"]
    at = len(left) - 1
    while at >= 0:
        fewer = left[:at] + left[at + 1 :]
        shown = Walk(pair, f"{seed}-without-{at}").play(fewer)
        if shown:
            left, found = fewer, shown
        at -= 1
    return left, found


def main() -> int:
    """Play walks; print each walk with a difference, with the fewest steps that show it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--count", type=int, default=200, help="walks to play")
    parser.add_argument("--steps", type=int, default=STEPS, help="requests of a walk")
    options = parser.parse_args()
    class_path("kafka")
    differing = 0
    with tempfile.TemporaryDirectory() as directory, started_pair(Path(directory)) as pair:
        for number in range(options.count):
            seed = f"{options.seed}-{number}"
            steps = random_steps(seed, options.steps)
            if not Walk(pair, seed).play(steps):
                continue
            differing += 1
            left, found = fewest(pair, seed, steps)
            print(f"walk {seed}: {len(left)} steps", *left, *found[:10], sep="\n    ", flush=True)
    print(f"{options.count} walks, {differing} differ", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
