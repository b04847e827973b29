"""Simulated brokers get the same responses and records from both controllers (Kafka 4.4, ours)."""

from __future__ import annotations

import itertools
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import pytest

from differential.controller_partition_cases import CASES, KNOWN
from differential.controller_scene import PausedMachineError, Scene
from differential.controllers import ControllerSide, make_barnabas, make_kafka
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.conformance


@pytest.fixture(scope="module")
def sides(
    kafka_jars: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[ControllerSide]]:
    kafka = make_kafka(tmp_path_factory.mktemp("kafka"))
    barnabas = make_barnabas(tmp_path_factory.mktemp("barnabas"))
    try:
        kafka.launch()
        barnabas.start()
        kafka.await_ready()
        both = [
            ControllerSide("kafka", kafka.bootstrap),
            ControllerSide("barnabas", barnabas.address),
        ]
        yield both
        for side in both:
            side.close()
    finally:
        kafka.close()
        barnabas.close()


NUMBERS = itertools.count(1)


def played(play: Callable[[Scene], None], sides: list[ControllerSide]) -> Scene | None:
    """Play a case with new brokers; return None if the machine was paused longer than a session."""
    scene = Scene(sides, next(NUMBERS))
    try:
        play(scene)
    except PausedMachineError:
        return None
    finally:
        scene.close()
    return scene


@pytest.mark.parametrize("play", CASES, ids=lambda play: play.__name__.replace("_", "-"))
def test_the_responses_and_the_records_are_equal(
    play: Callable[[Scene], None], sides: list[ControllerSide]
) -> None:
    scene = eventually(lambda: played(play, sides), "the machine is paused in each attempt")
    known = KNOWN.get(play.__name__, {})
    unexpected = [
        line for line in scene.found if not any(fnmatchcase(line, each) for each in known)
    ]
    assert not unexpected, "\n" + "\n".join(unexpected)
    gone = [each for each in known if not any(fnmatchcase(line, each) for line in scene.found)]
    assert not gone, f"no longer differs: {gone}"
