"""A request behind a waiting one is executed when its turn comes, as on Apache Kafka.

On one connection, requests follow a request that waits. Then they are sent on another connection,
where they are executed first. The responses on both connections show the order.
"""

from __future__ import annotations

import random
from functools import partial
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from barnabas.protocol.api_table import ApiKey
from differential.held_topic import HELD_TOPIC, release, started_pair_with_held_topic
from differential.known_differences import KNOWN_DIFFERENCES
from differential.matrix import objects
from differential.matrix.objects import resolved, value_of
from differential.matrix.other_cases import without_other_cases
from differential.matrix.valid_requests import VALID
from differential.playing import play_case
from differential.request import request
from differential.scene import Scene, batch, produce
from selection import nightly_unless

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.protocol.schema import Message
    from differential.matrix.valid_requests import Make
    from differential.scene import Pair
    from differential.side import Side

pytestmark = pytest.mark.conformance

# The connection with the waiting request.
BEHIND = "behind a waiting request"
FETCH_VERSION, JOIN_VERSION, PRODUCE_VERSION = 12, 3, 9
WAIT_MS = 300_000


@pytest.fixture(scope="module")
def pair(
    kafka_jars: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """Start both brokers, with a topic whose follower fetches only when a test asks."""
    with started_pair_with_held_topic(tmp_path_factory.mktemp("pair")) as made:
        yield made


def waiting_fetch(scene: Scene) -> Callable[[], None]:
    """Send a Fetch that waits for a record; return a function that appends the record."""
    name = scene.topic()
    values = {
        "replica_id": -1,
        "max_wait_ms": WAIT_MS,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "topics": [
            {"topic": name, "partitions": [{"partition": 0, "partition_max_bytes": 1 << 20}]}
        ],
    }
    scene.send(values, ApiKey.FETCH, FETCH_VERSION, BEHIND)

    def end() -> None:
        scene.produce(name, batch(b"end"))
        _receive(scene)

    return end


def _receive(scene: Scene) -> None:
    """Receive the response to the waiting request, which is not compared."""
    for side in scene.pair.sides():
        assert isinstance(side.receive(BEHIND), bytes), side.name


def waiting_join(scene: Scene) -> Callable[[], None]:
    """Send a JoinGroup that waits for another member; return a function with which it joins."""
    group = objects.new_group(scene, objects.topic(scene), "first of two")
    joining: dict[str, Any] = {
        "group_id": group,
        "session_timeout_ms": objects.SESSION_MS,
        "rebalance_timeout_ms": WAIT_MS,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"no topics"}],
    }
    scene.send(joining, ApiKey.JOIN_GROUP, JOIN_VERSION, BEHIND)

    def end() -> None:
        again = {**joining, "member_id": value_of("first of two")}
        scene.do(ApiKey.JOIN_GROUP, JOIN_VERSION, lambda side: resolved(again, side))
        _receive(scene)

    return end


def waiting_produce(scene: Scene) -> Callable[[], None]:
    """Send a Produce that waits for a follower; return a function that fetches as the follower."""
    values = {**produce(HELD_TOPIC, batch(b"held")), "timeout_ms": WAIT_MS}
    scene.send(values, ApiKey.PRODUCE, PRODUCE_VERSION, BEHIND)

    def end() -> None:
        for side in scene.pair.sides():
            release(side, BEHIND)
        _receive(scene)

    return end


WAITING = {"fetch": waiting_fetch, "join": waiting_join, "produce": waiting_produce}
# Responses that depend on work which Kafka goes on with after an earlier response.
RACES = {ApiKey.END_TXN, ApiKey.SHARE_GROUP_HEARTBEAT}


class Sent(NamedTuple):
    """A request for both brokers, in the newest version of its API."""

    api: ApiKey
    version: int
    build: Callable[[Side], Message]


def sent(scene: Scene, api: ApiKey, make: Make) -> Sent:
    """Make a valid request of an API."""
    scene.api, scene.version = api, scene.pair.versions(api)[-1]
    version, values = scene.version, make(scene)
    return Sent(api, version, lambda side: request(api, version, resolved(values, side)))


def play(behind: str, requests: Sequence[tuple[ApiKey, Make]], seed: int, scene: Scene) -> None:
    """Send the requests behind a waiting one, and meanwhile on another connection."""
    made = [sent(scene, api, make) for api, make in requests]
    end = WAITING[behind](scene)
    for each in made:
        scene.send(each.build, each.api, each.version, BEHIND)
    scene.await_arrival()
    for each in random.Random(seed).sample(made, len(made)):
        scene.send(each.build, each.api, each.version, "free")
        _compare(scene, each, "free")
    end()
    for each in made:
        _compare(scene, each, BEHIND)


def _compare(scene: Scene, each: Sent, on: str) -> None:
    scene.api, scene.version = each.api, each.version
    scene.label = f"{each.api.name} {on} ->"
    scene.before_comparing = _without_chance(scene)
    scene.compare_response(each.api, each.version, on)
    scene.before_comparing = lambda _: None


def _without_chance(scene: Scene) -> Callable[[Any], None]:
    """Return a function that removes other cases and random values from a response."""
    remove_others = without_other_cases(scene)

    def remove(response: Any) -> None:
        remove_others(response)
        if hasattr(response, "controller_id"):
            # Kafka names a broker at random.
            response.controller_id = -1

    return remove


def is_overtaking(behind: str, api: ApiKey) -> bool:
    """Return whether Barnabas executes a request although the previous one waits.

    ARCHITECTURE.md has the reason.
    """
    return behind == "produce" and api == ApiKey.PRODUCE


def differences(
    pair: Pair, behind: str, requests: Sequence[tuple[ApiKey, Make]], name: str, seed: int = 0
) -> str:
    """Play a case, and return the unexpected differences as text."""
    if is_overtaking(behind, requests[0][0]):
        requests = [requests[1], requests[0], *requests[2:]]
    known = {
        pattern: why
        for api, make in requests
        for pattern, why in KNOWN_DIFFERENCES.get(_matrix_case(api, make), {}).items()
    }
    _, found = play_case(
        lambda name: Scene(pair, requests[0][0], name, 0),
        f"behind-{behind}-{name}",
        partial(play, behind, requests, seed),
        known,
        set(),
    )
    return "\n".join(found)


def _matrix_case(api: ApiKey, make: Make) -> str:
    name = make.__name__.strip("_").replace("_", "-")
    return f"{api.name.lower()}: matrix-of-{name}"


REQUESTS = [
    (api, make) for api, makes in VALID.items() if api not in RACES for make in makes.values()
]


SINGLE = [
    pytest.param(
        behind,
        *each,
        id=f"{behind}-{_matrix_case(*each).replace(': matrix-of', '')}",
        # `make check` sends each request behind one of the waiting requests.
        marks=() if (number + kind) % len(WAITING) == 0 else pytest.mark.nightly,
    )
    for kind, behind in enumerate(WAITING)
    for number, each in enumerate(REQUESTS)
    if not is_overtaking(behind, each[0])
]


@pytest.mark.parametrize(("behind", "api", "make"), SINGLE)
def test_a_request_waits_for_its_turn(behind: str, api: ApiKey, make: Make, pair: Pair) -> None:
    """The same request on another connection is executed first, and the responses show it."""
    found = differences(pair, behind, [(api, make)], _matrix_case(api, make).replace(": ", "-"))
    assert not found, found


# A block has all pairs of the requests of two of these parts.
PART = 12
PARTS = [REQUESTS[start : start + PART] for start in range(0, len(REQUESTS), PART)]
BLOCKS = list(combinations_with_replacement(range(len(PARTS)), 2))


@pytest.mark.parametrize("seed", nightly_unless(range(2).__contains__, range(8)))
@pytest.mark.parametrize("behind", WAITING)
def test_requests_wait_for_their_turn_in_any_order(behind: str, seed: int, pair: Pair) -> None:
    requests = random.Random(seed).sample(REQUESTS, 12)
    found = differences(pair, behind, requests, f"in-any-order-{seed}", seed)
    assert not found, found


@pytest.mark.nightly
@pytest.mark.parametrize("is_reversed", [False, True], ids=["", "reversed"])
@pytest.mark.parametrize("block", BLOCKS, ids=[f"{first}-{second}" for first, second in BLOCKS])
@pytest.mark.parametrize("behind", WAITING)
def test_every_two_requests_wait_for_their_turn_in_both_orders(
    behind: str, block: tuple[int, int], is_reversed: bool, pair: Pair
) -> None:
    requests = [each for part in dict.fromkeys(block) for each in PARTS[part]]
    random.Random(str(block)).shuffle(requests)
    if is_reversed:
        requests.reverse()
    name = f"block-{block[0]}-{block[1]}" + "-reversed" * is_reversed
    found = differences(pair, behind, requests, name)
    assert not found, found


def test_every_two_apis_are_in_a_block() -> None:
    blocks = [{api for part in block for api, _ in PARTS[part]} for block in BLOCKS]
    apis = {api for api, _ in REQUESTS}
    together = {(first, second) for each in blocks for first in each for second in each}
    assert together == {(first, second) for first in apis for second in apis}
    assert apis | RACES == set(VALID)
