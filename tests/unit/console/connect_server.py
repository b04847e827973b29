"""A small Kafka Connect cluster in this process, with the REST interface that the console uses."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from server_in_thread import ServerInThread

SINK = "org.example.TableSinkConnector"
WORKER = "worker-1:8083"
PLUGINS = [
    {"class": SINK, "type": "sink", "version": "1.2"},
    {"class": "org.example.Rename", "type": "transformation", "version": "1.2"},
]


def definition(name: str, kind: str = "STRING", **more: Any) -> dict[str, Any]:
    """Return the definition of a config as a worker sends it."""
    return {
        "name": name, "type": kind, "required": False, "default_value": None,
        "importance": "MEDIUM", "documentation": f"About <code>{name}</code>.", "group": None,
        "order_in_group": 1, "width": "NONE", "display_name": name, "dependents": [], **more,
    }  # fmt: skip


DEFINITIONS = [
    definition("name", required=True, group="Common"),
    definition("connector.class", required=True, group="Common"),
    definition("tasks.max", "INT", default_value="1", importance="HIGH", group="Common"),
    definition("table", required=True, importance="HIGH"),
    definition("mode", importance="HIGH"),
    definition("pin", "PASSWORD"),
    definition("quiet", "BOOLEAN", default_value="false", importance="LOW"),
]


class ConnectServer(ServerInThread):
    """A Connect cluster on a free port; a context manager."""

    def __init__(self) -> None:
        # Connector -> its config.
        self.connectors: dict[str, dict[str, str]] = {}
        # Connector -> its state and the states of its tasks; RUNNING with one task by default.
        self.states: dict[str, dict[str, Any]] = {}
        self.offsets: dict[str, list[Any]] = {}
        # Method and path of each request, and the bodies of those that change something.
        self.requests: list[str] = []
        self.bodies: list[Any] = []
        self.headers: list[dict[str, str]] = []
        # Status and message of all responses in place of the regular ones.
        self.refusal: tuple[int, str] | None = None
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"null")
                cluster.requests.append(f"{self.command} {self.path}")
                cluster.headers.append(dict(self.headers))
                path = urlsplit(self.path).path
                status, content = cluster.answer(self.command, path, body)
                data = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_PUT = do_POST = do_PATCH = do_DELETE = do_GET

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(Handler)

    def add(self, name: str, state: str = "RUNNING", tasks: Any = (), **config: str) -> None:
        """Add a connector; keys of `config` have "_" for "."."""
        own = {key.replace("_", "."): value for key, value in config.items()}
        self.connectors[name] = {"name": name, "connector.class": SINK, **own}
        self.states[name] = {
            "name": name,
            "connector": {"state": state, "worker_id": WORKER},
            "tasks": list(tasks) or [task(0)],
            "type": "sink",
        }

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Return the status and the body of the response."""
        if self.refusal is not None:
            return self.refusal[0], {"error_code": self.refusal[0], "message": self.refusal[1]}
        words = [unquote(word) for word in path.strip("/").split("/")]
        match (method, words):
            case ("GET", [""]):
                return 200, {"version": "4.3.1", "commit": "c", "kafka_cluster_id": "other"}
            case ("GET", ["connector-plugins"]):
                return 200, PLUGINS
            case ("GET", ["connector-plugins", _, "config"]):
                return 200, DEFINITIONS
            case ("PUT", ["connector-plugins", plugin, "config", "validate"]):
                return 200, self._validation(plugin, body)
            case ("GET", ["connectors"]):
                return 200, {
                    name: {"status": self.states[name], "info": self._info(name)}
                    for name in self.connectors
                }
            case ("PUT", ["connectors", name, "config"]):
                self.bodies.append(body)
                self.add(name)
                self.connectors[name] = body
                return 200, self._info(name)
            case (_, ["connectors", name, *rest]) if name in self.connectors:
                return self._of_connector(method, name, rest, body)
        return 404, {"error_code": 404, "message": f"no {path}"}

    def _of_connector(self, method: str, name: str, rest: list[str], body: Any) -> tuple[int, Any]:
        match (method, rest):
            case ("GET", []):
                return 200, self._info(name)
            case ("GET", ["status"]):
                return 200, self.states[name]
            case ("GET", ["topics"]):
                return 200, {name: {"topics": ["orders"]}}
            case ("GET", ["offsets"]):
                return 200, {"offsets": self.offsets.get(name, [])}
            case ("PATCH", ["offsets"]):
                self.offsets[name] = body["offsets"]
                return 200, {"message": "The offsets have been altered"}
            case ("DELETE", ["offsets"]):
                self.offsets[name] = []
                return 200, {"message": "The offsets have been reset"}
            case ("DELETE", []):
                del self.connectors[name]
                return 200, None
            case ("PUT", [verb]):
                states = {"pause": "PAUSED", "resume": "RUNNING", "stop": "STOPPED"}
                self.states[name]["connector"]["state"] = states[verb]
                return 202, None
        return 202, None

    def _info(self, name: str) -> dict[str, Any]:
        return {"name": name, "config": self.connectors[name], "tasks": [], "type": "sink"}

    def _validation(self, plugin: str, config: dict[str, str]) -> dict[str, Any]:
        errors = {
            "table": [] if config.get("table") else ["a table is missing"],
            "mode": [] if config.get("mode", "insert") == "insert" else ["mode must be insert"],
        }
        configs = [
            {
                "definition": each,
                "value": {
                    "name": each["name"],
                    "value": config.get(each["name"]),
                    "recommended_values": ["insert"] if each["name"] == "mode" else [],
                    "errors": errors.get(each["name"], []),
                    "visible": True,
                },
            }
            for each in DEFINITIONS
        ]
        count = sum(map(len, errors.values()))
        return {"name": plugin, "error_count": count, "groups": ["Common"], "configs": configs}


def task(number: int, trace: str = "") -> dict[str, Any]:
    """Return the state of a task; one with a trace has failed."""
    state = {"id": number, "state": "FAILED" if trace else "RUNNING", "worker_id": WORKER}
    return {**state, "trace": trace} if trace else state
