"""Drawn requests: what was answered is what a restarted registry reads from the topic.

The topic is read as it was written, and as compaction leaves it: the last record of each key.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from barnabas.registry.config import LEVELS, MODES
from barnabas.registry.records import decode
from barnabas.registry.state import ALL, RegistryState
from registry_in_memory import RegistryInMemory

# The last one is a whole context.
SUBJECTS = ("a", "b", "%3A.s%3Aa", "%3A.s%3Ab", "%3A.s%3A")
SCHEMAS = [f'{{"type":"fixed","name":"f{size}","size":{size}}}' for size in range(1, 6)]
STEPS = 60
Records = list[tuple[bytes, bytes | None]]


class Walk:
    """One registry that gets drawn requests.

    Args:
        imports: whether schemas are also registered with ids of their own.
    """

    def __init__(self, seed: int, registry: RegistryInMemory, *, imports: bool = True) -> None:
        self._rng = random.Random(seed)
        self._imports = imports
        self._registry = registry
        registry.request("PUT", "/config", {"compatibility": "NONE"})

    def step(self) -> None:
        """Send a drawn request; it may be refused, but it never fails."""
        rng, subject = self._rng, self._rng.choice(SUBJECTS)
        method, path, body = rng.choice([
            *[("POST", f"/subjects/{subject}/versions", self._schema())] * 5,
            ("DELETE", f"/subjects/{subject}{self._permanent()}", None),
            ("DELETE", f"/subjects/{subject}/versions/{self._version()}{self._permanent()}", None),
            ("PUT", f"/config/{subject}", {"compatibility": rng.choice(LEVELS)}),
            ("PUT", f"/config/{subject}", {"normalize": rng.random() < 0.5}),
            ("PUT", f"/config/{subject}", {"defaultMetadata": {"properties": {"team": "x"}}}),
            ("DELETE", f"/config/{subject}", None),
            ("PUT", f"/mode/{subject}{rng.choice(['', '?force=true'])}", {"mode": self._mode()}),
            ("DELETE", f"/mode/{subject}", None),
        ])  # fmt: skip
        answer = self._registry.request(method, path, body)
        assert answer.status in (200, 404, 409, 422), (method, path, body, answer)

    def _schema(self) -> dict[str, Any]:
        body: dict[str, Any] = {"schema": self._rng.choice(SCHEMAS)}
        if self._imports and self._rng.random() < 0.2:
            body |= {"id": self._rng.randint(1, 9), "version": self._rng.randint(1, 4)}
        if self._rng.random() < 0.2:
            properties = {"confluent:version": "0", "owner": self._rng.choice("ab")}
            body["metadata"] = {"properties": properties}
        if self._rng.random() < 0.2:
            version = self._rng.randint(1, 3)
            body["references"] = [{"name": "r", "subject": "b", "version": version}]
        return body

    def _permanent(self) -> str:
        return self._rng.choice(["", "?permanent=true"])

    def _version(self) -> object:
        return self._rng.choice(["latest", 1, 2, 3])

    def _mode(self) -> str:
        return self._rng.choice(["READWRITE", *MODES])


def content_of(state: RegistryState) -> dict[str, Any]:
    """Return all that a registry can be asked."""
    versions = {name: state.versions(name, ALL) for name in state.subjects(which=ALL)}
    everything = [each for found in versions.values() for each in found]
    ids = {(context, each) for context in state.contexts for each in range(1, 30)}
    return {
        "versions": versions,
        "ids": {each: (state.content_of(*each), state.uses_of(*each, ALL)) for each in ids},
        "referents": {
            (each.subject, each.version): state.referents(each.subject, each.version)
            for each in everything
        },
        "settings": {
            name: (state.config(name), state.mode(name))
            for name in (None, "a", "b", ":.s:a", ":.s:b", ":.s:")
        },
        "contexts": state.contexts,
        "last_ids": state.last_ids,
    }


def read(records: Iterable[tuple[bytes, bytes | None]]) -> RegistryState:
    state = RegistryState()
    for key, value in records:
        state.apply(decode(key, value))
    return state


def compacted(records: Records) -> Records:
    """Return the last record of each key, in the order of offsets."""
    last = {key: offset for offset, (key, _) in enumerate(records)}
    return [each for offset, each in enumerate(records) if last[each[0]] == offset]


@pytest.mark.parametrize("seed", range(25))
def test_a_restarted_registry_answers_as_before(seed: int) -> None:
    with RegistryInMemory() as registry:
        walk = Walk(seed, registry)
        for _ in range(STEPS):
            walk.step()
        records = registry.store.records
        wanted = content_of(registry.state)
        assert content_of(read(records)) == wanted
        assert content_of(read(compacted(records))) == wanted


def test_the_last_id_of_a_replaced_version_is_not_used_again() -> None:
    with RegistryInMemory() as registry:
        registry.request("PUT", "/mode/a", {"mode": "IMPORT"})
        for number, schema in ((7, SCHEMAS[0]), (3, SCHEMAS[1])):
            body = {"schema": schema, "id": number, "version": 1}
            assert registry.request("POST", "/subjects/a/versions", body).status == 200
        assert read(compacted(registry.store.records)).last_id(".") == 7


@pytest.mark.parametrize("seed", range(25, 40))
def test_an_id_means_one_schema_for_ever(seed: int) -> None:
    with RegistryInMemory() as registry:
        walk = Walk(seed, registry, imports=False)
        meaning: dict[tuple[str, int], object] = {}
        for _ in range(STEPS):
            walk.step()
            for context in registry.state.contexts:
                for number in range(1, 30):
                    content = registry.state.content_of(context, number)
                    if content is not None:
                        known = meaning.setdefault((context, number), content)
                        assert known == content, (context, number)
