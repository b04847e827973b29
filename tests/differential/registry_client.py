"""Plays conversations with a schema registry, and compares the responses with the expected ones."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from differential.registry_calls import Call, Id

_TYPE = "application/vnd.schemaregistry.v1+json"
# Then a request is repeated: a new Apicurio Registry sometimes leaves one without a response.
_ANSWER_S = 10
# Fields that only new versions of Confluent's registry have.
_OPTIONAL = frozenset({"guid", "ts", "deleted", "schemaType"})


class Response(NamedTuple):
    """A response of the registry."""

    status: int
    body: Any

    @property
    def code(self) -> int | None:
        """The error code; None if there is none."""
        return self.body.get("error_code") if isinstance(self.body, dict) else None


class RegistryClient:
    """A connection to a registry, with the names and the ids of one conversation."""

    def __init__(self, url: str, mark: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=_ANSWER_S)
        self._base = parts.path
        self._names = {"$p": mark, "$s": f"{mark}-s", "$t": f"{mark}-t", "$c": f"{mark}-c"}
        self._names["$n"] = mark.title().replace("-", "")
        self._ids: dict[str, int] = {}

    def send(self, call: Call) -> Response:
        """Send the request of a call."""
        method, path = call.request.split(" ", 1)
        data = call.body
        if data is not None and not isinstance(data, bytes):
            data = json.dumps(data)
        if isinstance(data, str):
            data = self._named(data).encode()
        headers = {"Content-Type": _TYPE, **call.headers}
        words = (method, self._base + self._named(path), data, headers)
        try:
            return self._exchange(*words)
        except TimeoutError:
            self._connection.close()
            return self._exchange(*words)

    def difference(self, call: Call, response: Response) -> str:
        """Return how a response differs from the expected one; "" if it does not."""
        shown = f"{call.request}: {response.status} {response.body!r}"
        if response.status != call.status:
            return f"{shown}, expected status {call.status}"
        if call.status >= 400:
            if response.code != call.answer or not isinstance(response.body.get("message"), str):
                return f"{shown}, expected the error code {call.answer} and a message"
            return ""
        if not self._fits(call.answer, response.body):
            return f"{shown}, expected {call.answer!r}"
        return ""

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _exchange(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str]
    ) -> Response:
        self._connection.request(method, path, data, headers)
        with self._connection.getresponse() as response:
            content = response.read()
        try:
            return Response(response.status, json.loads(content))
        except ValueError:
            return Response(response.status, content)

    def _named(self, text: str) -> str:
        for mark, name in self._names.items():
            text = text.replace(mark, name)
        for name, number in self._ids.items():
            text = text.replace(f"@{name}", str(number))
        return text

    def _fits(self, expected: Any, found: Any) -> bool:
        if expected is ...:
            return True
        if isinstance(expected, Id):
            return isinstance(found, int) and self._ids.setdefault(expected.name, found) == found
        if isinstance(expected, str):
            return bool(self._named(expected) == found)
        if isinstance(expected, set):
            return sorted(map(self._named, expected)) == sorted(found)
        if isinstance(expected, dict):
            return (
                isinstance(found, dict)
                and set(expected) == set(found) - (_OPTIONAL - set(expected))
                and all(self._fits(value, found[key]) for key, value in expected.items())
            )
        if isinstance(expected, list):
            return (
                isinstance(found, list)
                and len(expected) == len(found)
                and all(map(self._fits, expected, found))
            )
        return type(expected) is type(found) and bool(expected == found)
