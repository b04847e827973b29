"""Drawn paths, queries, headers and bodies: the registry refuses them, and never fails."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from barnabas.registry.config import LEVELS, MODES
from registry_in_memory import RegistryInMemory

REQUESTS = 300
PARTS = (
    *("subjects", "a", "versions", "1", "latest", "schema", "referencedby", "schemas", "ids"),
    *("types", "compatibility", "config", "mode", "contexts", ".s", "v1", "metadata", "id"),
    *("", "%00", "%3A.s%3Aa", "%3A*%3A", "%ff", "..", "-1", "99999999999999999999", "%F0%9F%90%8E"),
)
PATTERNS = (
    *("subjects/{}/versions", "subjects/{}/versions/{}", "subjects/{}/versions/{}/schema"),
    *("schemas/ids/{}", "schemas/ids/{}/versions", "compatibility/subjects/{}/versions/{}"),
    *("config/{}", "mode/{}", "contexts/{}/subjects/{}/versions", "{}/{}"),
)
NAMES = ("deleted", "permanent", "normalize", "offset", "limit", "subject", "format", "force", "q")
HEADERS = ("accept", "content-type", "content-length", "authorization", "origin", "x-forward")
TEXTS = (
    "",
    "true",
    "0",
    "-1",
    "x",
    "\u00e9",
    "9" * 400,
    "application/json",
    ";q=",
    "*/*;q=x",
    "null",
)
MEMBERS = (
    *("schema", "schemaType", "references", "version", "id", "metadata", "ruleSet"),
    *("compatibility", "normalize", "mode", "name", "subject", "unknown"),
)


class Maker:
    """Draws requests."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def request(self) -> tuple[str, str, Any, dict[str, str]]:
        rng = self._rng
        pattern = rng.choice(PATTERNS)
        methods = ["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH"]
        usual = {"su": methods[:2], "sc": methods[:1], "co": methods[1:3], "mo": methods[:3]}.get(
            pattern[:2], methods
        )
        method = rng.choice(usual if rng.random() < 0.9 else methods)
        path = "/" + pattern.format(*(rng.choice(PARTS) for _ in range(pattern.count("{"))))
        query = "&".join(
            f"{rng.choice(NAMES)}={rng.choice(TEXTS).encode().hex()[:9] or 'true'}"
            for _ in range(rng.randint(0, 2))
        )
        named = rng.sample(HEADERS, 1 if rng.random() < 0.1 else 0)
        headers = {name: rng.choice(TEXTS) for name in named}
        return method, f"{path}?{query}" if query else path, self._body(), headers

    def _body(self) -> Any:
        rng = self._rng
        if rng.random() < 0.1:
            return rng.randbytes(rng.randint(0, 40))
        body = {rng.choice(MEMBERS): self._value(2) for _ in range(rng.randint(0, 2))}
        if rng.random() < 0.6:
            body["schema"] = rng.choice(['"string"', '"int"', "{}", self._value(2)])
        if rng.random() < 0.3:
            body |= {"mode": rng.choice(MODES), "compatibility": rng.choice(LEVELS)}
        return body

    def _value(self, depth: int) -> Any:
        rng = self._rng
        kind = rng.randrange(9) if depth else rng.randrange(6)
        if kind >= 7:
            return {rng.choice(MEMBERS): self._value(depth - 1) for _ in range(rng.randint(0, 4))}
        if kind == 6:
            return [self._value(depth - 1) for _ in range(rng.randint(0, 3))]
        choices = [
            *(None, True, rng.choice([0, -1, 1, 2**31, 10**30, 1.5, 1e300])),
            *(rng.choice(["AVRO", "JSON", "PROTOBUF", "FULL", "IMPORT", "x", "\u0000"]),) * 2,
            rng.choice(['"string"', "{}", "message A {}", json.dumps(depth), "[" * 2000]),
        ]
        return choices[kind]


@pytest.mark.parametrize("seed", range(12))
def test_drawn_requests_never_fail(seed: int) -> None:
    maker = Maker(seed)
    with RegistryInMemory() as registry:
        for _ in range(REQUESTS):
            method, target, body, headers = maker.request()
            answer = registry.request(method, target, body, headers)
            assert answer.status < 500, (method, target, body, headers, answer)
