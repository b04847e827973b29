"""A registry without brokers and sockets: its topic is a list, and requests are calls (ASGI).

Records pass through their JSON form, as through the topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from barnabas.registry.operations import ExaminedSchema, Registry, SchemaText
from barnabas.registry.records import Record, decode, encode
from barnabas.registry.rest.http_call import Call
from barnabas.registry.rest.routes import Identity, Routes
from barnabas.registry.schemas import check_level, parse
from barnabas.registry.security.access import Access, OpenAccess
from barnabas.registry.serving import RegistryApplication
from barnabas.registry.state import RegistryState

V1 = "application/vnd.schemaregistry.v1+json"


@dataclass(slots=True)
class Answer:
    """A response."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def error(self) -> tuple[int, int]:
        """Status and error code."""
        return self.status, self.json["error_code"]


class ListStore:
    """The topic: applies records at once."""

    def __init__(self, state: RegistryState) -> None:
        self._state = state
        self.records: list[tuple[bytes, bytes | None]] = []

    async def write(self, records: Sequence[Record]) -> None:
        for record in records:
            key, value = encode(record)
            self.records.append((key, value))
            self._state.apply(decode(key, value))


class InlineExaminer:
    """Parses and compares in the calling task."""

    async def parse(self, schema: SchemaText, *, normalize: bool) -> ExaminedSchema:
        parsed = parse(*schema)
        parsed = parsed.normalized() if normalize else parsed
        return ExaminedSchema(parsed.canonical, tuple(each.reference for each in parsed.references))

    async def format(self, schema: SchemaText, name: str) -> str:
        return parse(*schema).formatted(name)

    async def check(self, level: str, new: SchemaText, earlier: Sequence[SchemaText]) -> list[str]:
        return check_level(level, parse(*new), [parse(*each) for each in earlier])


class NoForwarder:
    """This process is the leader."""

    async def forwarded(self, call: Call, body: bytes) -> Response | None:
        return None


class RegistryInMemory:
    """A registry; use it in a `with` block."""

    def __init__(self, access: Access | None = None) -> None:
        self._runner = asyncio.Runner()
        self.state = RegistryState()
        self.store = ListStore(self.state)
        self.registry = Registry(self.state, self.store, InlineExaminer())
        self.application = RegistryApplication()
        self.application.routes = Routes(
            self.registry, NoForwarder(), access or OpenAccess(), Identity("cluster", "group")
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    def request(
        self,
        method: str,
        target: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request; a body that is not bytes becomes JSON."""
        data = (
            b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
        )
        return self._runner.run(self._request(method, target, data, headers or {}))

    async def _request(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str]
    ) -> Answer:
        path, _, query = target.partition("?")
        given = {"content-type": V1, **headers}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
            "client": ("127.0.0.1", 50_000),
        }
        answer = Answer()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {n.decode(): v.decode() for n, v in message["headers"]}
            else:
                answer.body += message.get("body", b"")

        await self.application(scope, receive, send)  # type: ignore[arg-type] # a plain mapping
        return answer

    def register(self, subject: str, schema: str, **members: Any) -> int:
        """Register a schema; return its id."""
        path = f"/subjects/{quote(subject, safe='')}/versions"
        answer = self.request("POST", path, {"schema": schema, **members})
        assert answer.status == 200, answer
        return int(answer.json["id"])
