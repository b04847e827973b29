"""The generated cases: each valid request of an API with one change, in every version.

In `differential.matrix`, `valid_requests` has the requests, `inputs` the classes of changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.api_keys import request_class
from barnabas.protocol.api_table import ApiKey
from differential.case import CASES, Case
from differential.matrix.excluded_inputs import is_sent
from differential.matrix.inputs import changed, inputs
from differential.matrix.loose_requests import loose_request
from differential.matrix.objects import resolved
from differential.matrix.other_cases import without_other_cases
from differential.matrix.valid_requests import VALID
from differential.request import request
from differential.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.schema import Message
    from differential.matrix.inputs import Input
    from differential.matrix.valid_requests import Make
    from differential.scene import Pair
    from differential.side import Side


def matrix(make: Make) -> Callable[[Scene], None]:
    """Return a case with all inputs of a valid request."""

    def play(scene: Scene) -> None:
        for each in inputs(request_class(scene.api), scene.version, make(scene)):
            if is_sent(scene.api, make, each.label):
                _send(scene, each, make)

    return play


def _send(scene: Scene, each: Input, make: Make) -> None:
    loose = loose_request(scene.api)
    values = changed(make(scene), each.path, lambda value: each.change(scene, value))

    def build(side: Side) -> Message:
        return request(scene.api, scene.version, resolved(values, side), loose)

    scene.label = f"{each.group}: {each.label} ->"
    scene.before_comparing = without_other_cases(scene)
    scene.compare(build)
    scene.by_class[each.group] += 1


def labels(pair: Pair, api: ApiKey) -> set[str]:
    """Return the labels of the inputs of an API, including inputs that are not sent."""
    scenes = [
        Scene(pair, api, f"labels-{api.name.lower()}", version) for version in pair.versions(api)
    ]
    return {
        each.label
        for scene in scenes
        for make in VALID[api].values()
        for each in inputs(request_class(api), scene.version, make(scene))
    }


GENERATED = [
    Case(api, f"matrix-of-{name}".replace(" ", "-"), matrix(make))
    for api, requests in VALID.items()
    for name, make in requests.items()
]
CASES += GENERATED
