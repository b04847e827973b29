"""Requests of hosts with few permissions get equal responses from Kafka 4.4 and Barnabas."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.api_keys import request_class
from barnabas.protocol.api_table import ApiKey
from differential.case import spans
from differential.known_differences import KNOWN_DIFFERENCES
from differential.matrix.excluded_inputs import is_sent
from differential.matrix.inputs import changed, inputs
from differential.matrix.loose_requests import loose_request
from differential.matrix.objects import resolved
from differential.matrix.other_cases import without_other_cases
from differential.matrix.valid_requests import VALID
from differential.playing import play_case
from differential.request import request
from differential.secured import CHECK_HOSTS, FEW_HOSTS, HOSTS, SecuredScene, started_secured_pair
from differential.secured_cases import play
from differential.secured_group_cases import ALL_CASES
from differential.side import RESPONSE_S
from selection import nightly_unless

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from barnabas.protocol.schema import Message
    from differential.matrix.valid_requests import Make
    from differential.request import Values
    from differential.scene import Pair
    from differential.secured_cases import Make as MakeSome
    from differential.side import Side

pytestmark = pytest.mark.conformance

REQUESTS = [
    (api, name, make)
    for api, ways in VALID.items()
    if api != ApiKey.API_VERSIONS
    for name, make in ways.items()
]
# Differences that do not concern permissions, and names that Kafka discloses.
KNOWN = {
    "*DescribeQuorum.nodes*listeners*": "a single node has no controller listener",
    "*AlterShareGroupOffsets.responses*topic_id*": "Kafka shows the ids of refused topics",
    **{
        f"{group} id: topics[0].topic_id = bytes of 16 -> Share*": "Kafka fails to look up the name"
        for group in ("unknown", "zero")
    },
    "null allowed: users = null *": "Kafka never responds",
}
# The label of that request, and how long the tests wait for Kafka's response to it.
WITHOUT_RESPONSE = "null allowed: users = null"
BRIEFLY_S = 3.0


@pytest.fixture(scope="module")
def pair(
    kafka_jars: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    with started_secured_pair(tmp_path_factory.mktemp("secured")) as made:
        yield made


@pytest.mark.parametrize(
    ("api", "name", "make"),
    REQUESTS,
    ids=[f"{api.name.lower()}: {name}" for api, name, _ in REQUESTS],
)
def test_a_valid_request_gets_the_same_response_for_all_permissions(
    api: ApiKey, name: str, make: Make, pair: Pair, pytestconfig: pytest.Config
) -> None:
    """`make check` sends the last version; `make nightly` all, two of them from all hosts."""
    found: dict[str, list[int]] = {}
    versions = pair.versions(api)
    edges = {versions[0], versions[-1]}
    is_nightly = pytestconfig.option.nightly
    hosts = HOSTS if is_nightly else CHECK_HOSTS
    for version in versions if is_nightly else versions[-1:]:
        for host in hosts if version in edges else FEW_HOSTS:

            def compare(scene: SecuredScene) -> None:
                values = make(scene)
                scene.before_comparing = _without_other_cases(scene)
                scene.compare(lambda side: request(api, scene.version, resolved(values, side)))

            for line in _differences(_scenes(pair, api, version, host), f"{name}-{host}", compare):
                found.setdefault(f"{host}: {line}", []).append(version)
    assert not found, "\n" + "\n".join(f"{spans(seen)} {line}" for line, seen in found.items())


@pytest.mark.parametrize(
    ("api", "name", "make"),
    REQUESTS,
    ids=[f"{api.name.lower()}: {name}" for api, name, _ in REQUESTS],
)
@pytest.mark.parametrize("host", nightly_unless("nothing".__eq__, ["nothing", "all but cluster"]))
def test_an_invalid_request_gets_the_same_response_for_all_permissions(
    api: ApiKey, name: str, make: Make, host: str, pair: Pair
) -> None:
    found: dict[str, list[int]] = {}
    loose = loose_request(api)

    def build(version: int, values: Values, side: Side) -> Message:
        return request(api, version, resolved(values, side), loose)

    for version in {min(pair.versions(api)), max(pair.versions(api))}:

        def compare(scene: SecuredScene) -> None:
            for each in inputs(request_class(api), scene.version, make(scene)):
                if is_sent(api, make, each.label):
                    values = changed(make(scene), each.path, partial(each.change, scene))
                    label = f"{each.group}: {each.label}"
                    scene.label = f"{label} ->"
                    scene.before_comparing = _without_other_cases(scene)
                    kafka = scene.pair.kafka
                    kafka.patience_s = BRIEFLY_S if label == WITHOUT_RESPONSE else RESPONSE_S
                    scene.compare(partial(build, scene.version, values))
                    kafka.patience_s = RESPONSE_S

        known = KNOWN_DIFFERENCES.get(f"{api.name.lower()}: matrix-of-{name.replace(' ', '-')}", {})
        for line in _differences(
            _scenes(pair, api, version, host), f"part-{name}-{host}", compare, known
        ):
            found.setdefault(line, []).append(version)
    assert not found, "\n" + "\n".join(f"{spans(seen)} {line}" for line, seen in found.items())


def _differences(
    new_scene: Callable[[str], SecuredScene],
    name: str,
    compare: Callable[[SecuredScene], None],
    known: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    _scene, found = play_case(new_scene, name.replace(" ", "-"), compare, {**KNOWN, **known}, set())
    return found


def _scenes(pair: Pair, api: ApiKey, version: int, host: str) -> Callable[[str], SecuredScene]:
    """Return a function that makes scenes; their names begin with that of the API."""
    return lambda name: SecuredScene(pair, api, f"{api.name.lower()}-{name}", version, host)


def _without_other_cases(scene: SecuredScene) -> Callable[[Any], None]:
    """Remove the objects of other hosts' scenes from a response."""
    remove_others = without_other_cases(scene)

    def without(response: Any) -> None:
        remove_others(response)
        if scene.api == ApiKey.DESCRIBE_PRODUCERS:
            for topic in response.topics:
                for partition in topic.partitions:
                    del partition.active_producers[1:]

    return without


@pytest.mark.parametrize(
    ("api", "name", "make"),
    ALL_CASES,
    ids=[f"{api.name.lower()}: {name}" for api, name, _ in ALL_CASES],
)
@pytest.mark.parametrize(
    "host",
    nightly_unless(
        "by prefix".__eq__,
        ["by prefix", "nothing", "describe", "all but describing topics"],
    ),
)
def test_the_refused_part_of_a_request_gets_the_same_response(
    api: ApiKey, name: str, make: MakeSome, host: str, pair: Pair, pytestconfig: pytest.Config
) -> None:
    found: dict[str, list[int]] = {}
    versions = pair.versions(api)
    for version in versions if pytestconfig.option.nightly else versions[-1:]:
        compare = partial(play, make=make)
        for line in _differences(
            _scenes(pair, api, version, host), f"wrong-{name}-{host}", compare
        ):
            found.setdefault(line, []).append(version)
    assert not found, "\n" + "\n".join(f"{spans(seen)} {line}" for line, seen in found.items())
