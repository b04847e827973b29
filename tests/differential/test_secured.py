"""Requests of hosts with few permissions get equal responses from Kafka 4.4 and Barnabas."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.api_keys import request_class
from barnabas.protocol.api_table import ApiKey
from differential.case import spans
from differential.known_differences import KNOWN_DIFFERENCES
from differential.matrix.inputs import changed, inputs
from differential.matrix.left_out import is_sent
from differential.matrix.loose import loose_request
from differential.matrix.of_others import without_others
from differential.matrix.standing import resolved
from differential.matrix.valid import VALID
from differential.request import request
from differential.secured import FEW_HOSTS, HOSTS, SecuredScene, started_secured_pair
from differential.secured_cases import play
from differential.secured_group_cases import ALL_CASES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.protocol.schema import Message
    from differential.matrix.valid import Make
    from differential.scene import Pair
    from differential.secured_cases import Make as MakeSome
    from differential.side import Side

pytestmark = pytest.mark.conformance

WAYS = [
    (api, name, make)
    for api, ways in VALID.items()
    if api != ApiKey.API_VERSIONS
    for name, make in ways.items()
]
# Differences that do not concern rights, and names that Kafka discloses.
KNOWN = {
    "*DescribeQuorum.nodes*listeners*": "a single node has no controller listener",
    "*AlterShareGroupOffsets.responses*topic_id*": "Kafka shows the ids of refused topics",
    **{
        f"{group} id: topics[0].topic_id = bytes of 16 -> Share*": "Kafka fails to look up the name"
        for group in ("unknown", "zero")
    },
    "null allowed: users = null *": "Kafka never answers it",
}


@pytest.fixture(scope="module")
def pair(
    kafka_jars: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    with started_secured_pair(tmp_path_factory.mktemp("secured")) as made:
        yield made


@pytest.mark.parametrize(
    ("api", "name", "make"), WAYS, ids=[f"{api.name.lower()}: {name}" for api, name, _ in WAYS]
)
def test_a_valid_request_gets_the_same_response_for_all_permissions(
    api: ApiKey, name: str, make: Make, pair: Pair
) -> None:
    found: dict[str, list[int]] = {}
    versions = pair.versions(api)
    for version in versions:
        for host in HOSTS if version in (versions[0], versions[-1]) else FEW_HOSTS:
            title = f"{api.name.lower()}-{name}-{host}".replace(" ", "-")
            scene = SecuredScene(pair, api, title, version, host)
            values = make(scene)

            def build(side: Side) -> Message:
                return request(api, version, resolved(values, side))  # noqa: B023

            scene.before_comparing = _without_others(scene)
            scene.compare(build)
            for line in scene.unexpected(KNOWN, set()):
                found.setdefault(f"{host}: {line}", []).append(version)
    assert not found, "\n" + "\n".join(f"{spans(seen)} {line}" for line, seen in found.items())


@pytest.mark.parametrize(
    ("api", "name", "make"), WAYS, ids=[f"{api.name.lower()}: {name}" for api, name, _ in WAYS]
)
@pytest.mark.parametrize("host", ["nothing", "all but cluster"])
def test_an_invalid_request_gets_the_same_response_for_all_permissions(
    api: ApiKey, name: str, make: Make, host: str, pair: Pair
) -> None:
    found: dict[str, list[int]] = {}
    loose = loose_request(api)
    for version in {min(pair.versions(api)), max(pair.versions(api))}:
        title = f"part-{api.name.lower()}-{name}-{host}".replace(" ", "-")
        scene = SecuredScene(pair, api, title, version, host)
        for each in inputs(request_class(api), version, make(scene)):
            if not is_sent(api, make, each.label):
                continue
            values = changed(make(scene), each.path, partial(each.change, scene))

            def build(side: Side) -> Message:
                return request(api, version, resolved(values, side), loose)  # noqa: B023

            scene.label = f"{each.group}: {each.label} ->"
            scene.before_comparing = _without_others(scene)
            scene.compare(build)
        known = KNOWN_DIFFERENCES.get(f"{api.name.lower()}: matrix-of-{name.replace(' ', '-')}", {})
        for line in scene.unexpected({**KNOWN, **known}, set()):
            found.setdefault(line, []).append(version)
    assert not found, "\n" + "\n".join(f"{spans(seen)} {line}" for line, seen in found.items())


def _without_others(scene: SecuredScene) -> Callable[[Any], None]:
    """Remove the objects of other hosts' scenes from a response."""
    take_out = without_others(scene)

    def without(answer: Any) -> None:
        take_out(answer)
        if scene.api == ApiKey.DESCRIBE_PRODUCERS:
            for topic in answer.topics:
                for partition in topic.partitions:
                    del partition.active_producers[1:]

    return without


@pytest.mark.parametrize(
    ("api", "name", "make"),
    ALL_CASES,
    ids=[f"{api.name.lower()}: {name}" for api, name, _ in ALL_CASES],
)
@pytest.mark.parametrize("host", ["by prefix", "nothing", "describe", "all but describing topics"])
def test_the_refused_part_of_a_request_gets_the_same_response(
    api: ApiKey, name: str, make: MakeSome, host: str, pair: Pair
) -> None:
    found: dict[str, list[int]] = {}
    for version in pair.versions(api):
        title = f"wrong-{api.name.lower()}-{name}-{host}".replace(" ", "-")
        scene = SecuredScene(pair, api, title, version, host)
        play(scene, make)
        for line in scene.unexpected(KNOWN, set()):
            found.setdefault(line, []).append(version)
    assert not found, "\n" + "\n".join(f"{spans(seen)} {line}" for line, seen in found.items())
