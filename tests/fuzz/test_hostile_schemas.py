"""Hostile and damaged schemas, parsed and compared in the registry's code."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from barnabas.registry.schemas import InvalidSchemaError, incompatibilities, parse
from fuzz.hostile_schemas import hostile_schemas
from jvm.drawn_schemas import damaged_json, drawn_pairs

# Each takes less than a second. Without limits, most would take hours.
CPU_S_MAX = 20
HOSTILE = hostile_schemas()
# `make nightly` damages more.
DAMAGED, NIGHTLY_DAMAGED = 200, 600
# Schemas beside which all of the others is new.
EMPTY = {
    "AVRO": '{"type":"record","name":"R","fields":[]}',
    "JSON": '{"type":"object","additionalProperties":false}',
    "PROTOBUF": 'syntax = "proto3"; package empty;',
}


@contextmanager
def limited_cpu() -> Iterator[None]:
    """Fail if the body takes too much time of the processor; the load of others does not count."""

    def fail(*_: object) -> None:
        raise AssertionError(f"the schema took more than {CPU_S_MAX} s of the processor")

    before = signal.signal(signal.SIGVTALRM, fail)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def use(kind: str, text: str, other: str | None = None) -> bool:
    """Parse, normalize and compare a schema; return whether it was accepted."""
    try:
        schema = parse(kind, text)
        assert parse(kind, schema.canonical, is_new=False).canonical == schema.canonical
        again = parse(kind, schema.normalized().canonical if other is None else other)
        empty = parse(kind, EMPTY[kind])
        for one, two in ((schema, again), (again, schema), (schema, empty), (empty, schema)):
            incompatibilities(one, two)
    except InvalidSchemaError:
        return False
    return True


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_schemas_cost_a_bounded_time(name: str) -> None:
    with limited_cpu():
        use(*HOSTILE[name])


def test_damaged_schemas_are_accepted_or_refused(pytestconfig: pytest.Config) -> None:
    count = NIGHTLY_DAMAGED if pytestconfig.option.nightly else DAMAGED
    rng = random.Random(1)
    accepted = 0
    for pair in drawn_pairs(2, count):
        texts = [_damaged(rng, pair.kind, text) for text in (pair.writer, pair.reader)]
        accepted += use(pair.kind, *texts)
    assert count // 20 < accepted < count


def _damaged(rng: random.Random, kind: str, text: str) -> str:
    """Return a text with a part that is missing, or another one."""
    if kind != "PROTOBUF":
        return damaged_json(rng, text)
    words = text.split(" ")
    at = rng.randrange(len(words))
    words[at : at + rng.randint(0, 1)] = rng.choice((["{"], [], [";"], ["message"], ["0"], ["}"]))
    return " ".join(words)
