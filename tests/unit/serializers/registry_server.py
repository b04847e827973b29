"""A small schema registry in this process: what a real one answers, and what a broken one does."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from server_in_thread import ServerInThread

# (method, path, headers) -> (status, body), or None for the regular answer.
Override = Callable[[str, str, Any], "tuple[int, bytes] | None"]


class RegistryServer(ServerInThread):
    """A registry on a free port; a context manager.

    Args:
        override: Answers requests in place of the registry.
        tls: Serves HTTPS with this context.
    """

    def __init__(self, override: Override | None = None, tls: ssl.SSLContext | None = None) -> None:
        # The id of a schema is its place, from 1.
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        # Method and path of each request.
        self.requests: list[str] = []
        # The JSON bodies of all requests that have one.
        self.bodies: list[Any] = []
        self.override = override
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.respond(b"")

            def do_DELETE(self) -> None:
                self.respond(b"")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                registry.bodies.append(json.loads(body))
                self.respond(body)

            do_PUT = do_POST

            def respond(self, body: bytes) -> None:
                registry.requests.append(f"{self.command} {self.path}")
                override = registry.override
                found = override and override(self.command, self.path, self.headers)
                status, answer = found or registry.answer(self.command, self.path, body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(Handler, tls)

    def add(self, text: str, kind: str = "AVRO") -> int:
        """Add a schema without a subject; return its id."""
        schema = {"schema": text, "schemaType": kind}
        if schema not in self.schemas:
            self.schemas.append(schema)
        return self.schemas.index(schema) + 1

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Return status and body of a regular answer."""
        words = [unquote(word) for word in urlsplit(path).path.strip("/").split("/")]
        match words:
            case ["schemas", "ids", number] if 0 < int(number) <= len(self.schemas):
                return _json(self.schemas[int(number) - 1])
            case ["schemas", "ids", _]:
                return _json({"error_code": 40403, "message": "Schema not found"}, 404)
            case ["subjects"]:
                return _json(list(self.subjects))
            case ["subjects", subject, "versions"] if method == "POST":
                given = json.loads(body)
                number = self.add(given["schema"], given.get("schemaType", "AVRO"))
                self.subjects.setdefault(subject, []).append(number)
                return _json({"id": number})
            case ["subjects", subject, "versions", "latest"] if subject in self.subjects:
                return self._version(subject, len(self.subjects[subject]))
            case ["subjects", subject, "versions", number] if subject in self.subjects:
                return self._version(subject, int(number))
            case ["subjects", subject] if method == "POST" and subject in self.subjects:
                given = json.loads(body)
                wanted = self.add(given["schema"], given.get("schemaType", "AVRO"))
                ids = self.subjects[subject]
                return self._version(subject, ids.index(wanted) + 1 if wanted in ids else 0)
        return _json({"error_code": 40401, "message": "Subject not found."}, 404)

    def _version(self, subject: str, number: int) -> tuple[int, bytes]:
        ids = self.subjects[subject]
        if not 0 < number <= len(ids):
            return _json({"error_code": 40402, "message": "Version not found."}, 404)
        place = {"subject": subject, "version": number, "id": ids[number - 1]}
        return _json({**place, **self.schemas[ids[number - 1] - 1]})


def _json(content: Any, status: int = 200) -> tuple[int, bytes]:
    return status, json.dumps(content).encode()
