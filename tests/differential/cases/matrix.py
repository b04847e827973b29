"""The generated cases: each valid request of an API with one thing changed, in every version.

See `differential.matrix`: `valid` has the requests, `inputs` the classes of changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.api_keys import request_class
from barnabas.protocol.api_table import ApiKey
from differential.case import CASES, Case
from differential.matrix.inputs import changed, inputs
from differential.matrix.left_out import is_sent
from differential.matrix.loose import loose_request
from differential.matrix.of_others import without_others
from differential.matrix.standing import resolved
from differential.matrix.valid import VALID
from differential.request import request
from differential.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.schema import Message
    from differential.matrix.inputs import Input
    from differential.matrix.valid import Make
    from differential.scene import Pair
    from differential.side import Side


def matrix(make: Make) -> Callable[[Scene], None]:
    """A case of all inputs that a valid request gives."""

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
    scene.before_comparing = without_others(scene)
    scene.compare(build)
    scene.by_class[each.group] += 1


def labels(pair: Pair, api: ApiKey) -> set[str]:
    """Names of the inputs of an API, including those that are not sent."""
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
    for api, ways in VALID.items()
    for name, make in ways.items()
]
CASES += GENERATED
