"""Requests with several errors: valid requests with two to four inputs of the matrix.

The matrix changes one field at a time. Random combinations show which of two errors a broker
returns, and how errors interact. A round depends only on a seed and its number, so that each
difference is reproducible:

    make mutations MUTATIONS="--seed 7 --count 20000"
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.protocol.api_keys import request_class
from barnabas.protocol.api_table import ApiKey
from differential.broker_pair import started_pair
from differential.known_differences import KNOWN_DIFFERENCES
from differential.matrix.excluded_inputs import NOT_COMBINED, is_sent
from differential.matrix.inputs import changed, inputs
from differential.matrix.loose_requests import loose_request
from differential.matrix.objects import resolved
from differential.matrix.other_cases import without_other_cases
from differential.matrix.valid_requests import VALID
from differential.request import request
from differential.scene import Scene, matches
from jvm.maven import class_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.protocol.schema import Message
    from differential.matrix.inputs import Input
    from differential.scene import Pair
    from differential.side import Side

# Number of requests in a round. They share the API, the valid request and the version.
ROUND = 20
INPUTS_MAX = 4
# After a round of these APIs, both brokers apply all changes before the next round.
CHANGES_METADATA = {
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.ELECT_LEADERS,
}
# Topics that a Metadata request creates appear a little later.
_CREATED = re.compile(r".+-unknown-\d+")


class Difference(NamedTuple):
    """A path in a response, Kafka's value and Barnabas's value."""

    path: str
    kafka: object
    barnabas: object


@dataclass(frozen=True)
class Found:
    """A request with different responses, and the fewest inputs that show a difference."""

    case: str
    version: int
    inputs: tuple[str, ...]
    differences: tuple[Difference, ...]

    @property
    def kind(self) -> tuple[str, ...]:
        """The differences without names and places; only those of error codes, if there are any."""
        codes = [each for each in self.differences if "error_code" in each.path]
        lines = [
            f"{_without_places(path)}: {_brief(kafka)} / {_brief(barnabas)}"
            for path, kafka, barnabas in codes or self.differences
        ]
        return (self.case.partition(":")[0], *dict.fromkeys(lines))

    def __str__(self) -> str:
        differences = "; ".join(f"{p}: {_brief(k)} / {_brief(b)}" for p, k, b in self.differences)
        return f"{self.case} v{self.version} [{' + '.join(self.inputs)}] {differences}"


@dataclass
class Round:
    """Random requests of one API in one version."""

    pair: Pair
    seed: str
    api: ApiKey
    sent: int = 0
    found: list[Found] = field(default_factory=list)

    def play(self) -> None:
        """Send all requests; repeat requests with differences with fewer inputs."""
        chance = random.Random(f"{self.seed} {self.api.name}")
        kind, self._make = chance.choice(list(VALID[self.api].items()))
        self._case = f"{self.api.name.lower()}: " + f"matrix-of-{kind}".replace(" ", "-")
        version = chance.choice(self.pair.versions(self.api))
        self._scene = Scene(self.pair, self.api, f"mutated-{self.seed}-{self.api.name}", version)
        made = self._make(self._scene)
        choices = [each for each in self._inputs(version, made) if each.group != "valid"]
        for _ in range(ROUND):
            count = chance.choice(range(2, INPUTS_MAX + 1))
            together = chance.sample(choices, min(count, len(choices)))
            self._try(together)
        if self.api in CHANGES_METADATA:
            self._scene.settle()

    def _inputs(self, version: int, made: Any) -> Iterator[Input]:
        known = KNOWN_DIFFERENCES.get(self._case, {})
        for each in inputs(request_class(self.api), version, made):
            alone = f"{each.group}: {each.label} ->"
            differs = any(matches(pattern, f"{alone} response") for pattern in known)
            together = (self.api, each.label) not in NOT_COMBINED
            if together and is_sent(self.api, self._make, each.label) and not differs:
                yield each

    def _try(self, together: Sequence[Input]) -> None:
        differences = self._send(together)
        if not differences:
            return
        found = next(
            (
                (some, again)
                for count in range(len(together) + 1)
                for some in itertools.combinations(together, count)
                if (again := self._send(some))
            ),
            None,
        )
        if found is None:
            # Like `playing`: Kafka's responses differ once in some thousands of requests.
            self.pair.differed_once.append(f"{self._case} {differences[0]}")
            return
        fewest, shown = found
        labels = tuple(f"{each.group}: {each.label}" for each in fewest)
        self.found.append(Found(self._case, self._scene.version, labels, tuple(shown)))

    def _send(self, together: Sequence[Input]) -> list[Difference]:
        scene, values = self._scene, self._make(self._scene)
        for each in together:
            # A change cannot alter a field that an earlier change has removed.
            if _is_there(values, each.path):
                values = changed(values, each.path, _change(scene, each))
        loose = loose_request(self.api)

        def build(side: Side) -> Message:
            return request(self.api, scene.version, resolved(values, side), loose)

        scene.label = "mutated"
        scene.before_comparing = without_other_cases(scene, _CREATED)
        before = len(scene.found)
        scene.compare_pending(build)
        self.sent += 1
        known = KNOWN_DIFFERENCES.get(self._case, {})
        return [
            Difference(path.removeprefix("mutated "), kafka, barnabas)
            for path, kafka, barnabas in scene.found[before:]
            if not any(matches(pattern, path) for pattern in known)
        ]


def _change(scene: Scene, each: Input) -> Callable[[Any], Any]:
    def change(value: Any) -> Any:
        if value is None and each.group == "duplicates":
            return None
        return each.change(scene, value)

    return change


def _is_there(values: Any, path: Sequence[str | int]) -> bool:
    for at, step in enumerate(path):
        if isinstance(values, list) and isinstance(step, int) and step < len(values):
            values = values[step]
        elif isinstance(values, dict) and (step in values or at == len(path) - 1):
            values = values.get(str(step))
        else:
            return False
    return True


def _without_places(path: str) -> str:
    return re.sub(r"\[.*?\](?=\.|$)", "[]", path)


def _brief(value: object) -> str:
    text = re.sub(r"x{40,}", "x...", repr(value))
    text = re.sub(r"mutated-[^']*?-(topic|group|client|unknown)-\d+", r"a \1", text)
    return text if len(text) <= 60 else f"{text[:60]}... ({len(text)})"


def rounds(pair: Pair, seed: str, apis: Sequence[ApiKey]) -> Iterator[Round]:
    """Yield rounds of each API in turn, endlessly."""
    for number in itertools.count():
        for api in apis:
            each = Round(pair, f"{seed}-{number}", api)
            each.play()
            yield each


def main() -> int:
    """Send mutated requests; print each kind of difference once, with example requests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--count", type=int, default=20_000, help="requests to send")
    parser.add_argument("--api", action="append", type=str.upper, help="only these APIs")
    options = parser.parse_args()
    apis = [ApiKey[name] for name in options.api] if options.api else list(VALID)
    class_path("kafka")
    kinds: dict[tuple[str, ...], list[Found]] = defaultdict(list)
    sent = 0
    with tempfile.TemporaryDirectory() as directory, started_pair(Path(directory)) as pair:
        for each in rounds(pair, options.seed, apis):
            sent += each.sent
            for found in each.found:
                if found.kind not in kinds:
                    print(f"{each.seed} {found}", flush=True)
                kinds[found.kind].append(found)
            if sent >= options.count:
                break
    for kind, examples in sorted(kinds.items()):
        print(f"\n{len(examples)} x {' | '.join(kind)}")
        for example in sorted(examples, key=lambda each: len(each.inputs))[:3]:
            print(f"    {example}")
    print(f"\n{sent} requests, {len(kinds)} kinds of differences", file=sys.stderr)
    return 1 if kinds else 0


if __name__ == "__main__":
    raise SystemExit(main())
