"""Client of the REST interface of a Kafka Connect cluster.

Any worker of a cluster answers; it forwards requests to the worker that leads the group. All calls
block. Versions: restarts with tasks since Connect 3.0, definitions of a plug-in since 3.2, offsets
and stopped connectors since 3.6.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from barnabas.runtime import web

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

T = TypeVar("T")

_NOT_FOUND, _CONFLICT = 404, 409
# A list of 5,000 connectors with their configs is about this large.
_RESPONSE_BYTES_MAX = 32 * 1024 * 1024
_MESSAGE_CHARACTERS_MAX = 2000


class ConnectError(Exception):
    """A Connect cluster was not reached, or refused a request.

    Attributes:
        status: The HTTP status; 0 if no worker responded.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        self.status = status
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class ConnectSettings:
    """The address of a Connect cluster, and how the console logs in there."""

    # The name in the console's pages.
    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None


class Worker(msgspec.Struct, frozen=True):
    """The worker that answered, and the Kafka cluster that it uses."""

    version: str = ""
    commit: str = ""
    kafka_cluster_id: str = ""


class Plugin(msgspec.Struct, frozen=True):
    """A class that workers have installed."""

    # The full name of the class.
    name: str = msgspec.field(name="class")
    # "source", "sink", "converter", "transformation", ...
    type: str = ""
    version: str | None = None


class State(msgspec.Struct, frozen=True):
    """The state of a connector or a task."""

    # RUNNING, PAUSED, STOPPED, FAILED, UNASSIGNED, RESTARTING, DESTROYED
    state: str
    worker_id: str = ""
    # The number of a task; -1 for the connector.
    id: int = -1
    # The stack trace of a failure.
    trace: str | None = None


class Status(msgspec.Struct, frozen=True):
    """The states of a connector and its tasks."""

    name: str
    connector: State
    tasks: tuple[State, ...] = ()
    # "source" or "sink"
    type: str = ""


class _Info(msgspec.Struct, frozen=True):
    name: str
    config: dict[str, str | None]
    type: str | None = None


class Connector(msgspec.Struct, frozen=True):
    """A connector with its status and its config."""

    status: Status
    info: _Info

    @property
    def name(self) -> str:
        """The name."""
        return self.info.name

    @property
    def type(self) -> str:
        """Either "source" or "sink"; "" if no worker knows."""
        return self.status.type or self.info.type or ""

    @property
    def plugin(self) -> str:
        """The class of the connector."""
        return self.info.config.get("connector.class") or ""

    @property
    def states(self) -> list[State]:
        """The states of the connector and its tasks."""
        return [self.status.connector, *self.status.tasks]

    @property
    def failed(self) -> int:
        """The number of tasks that failed."""
        return sum(each.state == "FAILED" for each in self.status.tasks)

    @property
    def state(self) -> str:
        """The state of the connector; FAILED also if only tasks failed."""
        return "FAILED" if self.failed else self.status.connector.state


class Definition(msgspec.Struct, frozen=True):
    """The definition of a config by a plug-in."""

    name: str
    # STRING, INT, LIST, PASSWORD, ...
    type: str = "STRING"
    required: bool = False
    default_value: str | None = None
    importance: str = ""
    documentation: str | None = None
    group: str | None = None
    order_in_group: int = 0
    display_name: str | None = None


class Value(msgspec.Struct, frozen=True):
    """A value of a config, as the plug-in judges it."""

    name: str
    value: str | None = None
    recommended_values: tuple[str | None, ...] = ()
    errors: tuple[str, ...] = ()
    visible: bool = True


class CheckedConfig(msgspec.Struct, frozen=True):
    """A definition with the value that was checked."""

    definition: Definition
    value: Value


class Validation(msgspec.Struct, frozen=True):
    """The result of a check of a config."""

    name: str = ""
    error_count: int = 0
    groups: tuple[str, ...] = ()
    configs: tuple[CheckedConfig, ...] = ()


class _Topics(msgspec.Struct):
    topics: list[str]


class Offset(msgspec.Struct, frozen=True):
    """An offset of a connector: of a sink in Kafka's topics, of a source in its system."""

    partition: dict[str, Any]
    offset: dict[str, Any] | None = None


class _Offsets(msgspec.Struct):
    offsets: list[Offset]


class _Message(msgspec.Struct):
    message: str = ""


class _Refusal(msgspec.Struct):
    message: str = ""
    error_code: int = 0


class _Request(msgspec.Struct, frozen=True):
    path: str
    method: str = "GET"
    body: Any = None


class ConnectCluster:
    """A Connect cluster.

    Args:
        settings: The address and the log-in.
        timeout_s: Limit for a request (s).
    """

    def __init__(self, settings: ConnectSettings, timeout_s: float) -> None:
        self._settings = settings
        self._timeout_s = timeout_s

    @property
    def name(self) -> str:
        """The name in the console's pages."""
        return self._settings.name

    @property
    def url(self) -> str:
        """The address."""
        return self._settings.url

    def worker(self) -> Worker:
        """Return the version of the worker that answers."""
        return self._send(_Request("/"), Worker)

    def plugins(self) -> list[Plugin]:
        """Return all plug-ins; only the connectors if the worker is older than 3.2."""
        return self._send(_Request("/connector-plugins?connectorsOnly=false"), list[Plugin])

    def connectors(self) -> list[Connector]:
        """Return all connectors by name."""
        path = "/connectors?expand=status&expand=info"
        found = self._send(_Request(path), dict[str, Connector])
        return [found[name] for name in sorted(found)]

    def connector(self, name: str) -> Connector:
        """Return a connector."""
        info = self._send(_Request(_path(name)), _Info)
        return Connector(self._send(_Request(_path(name, "status")), Status), info)

    def topics(self, name: str) -> list[str]:
        """Return the topics that a connector has used since its start or the last reset."""
        found = self._send(_Request(_path(name, "topics")), dict[str, _Topics])
        return sorted(topic for each in found.values() for topic in each.topics)

    def offsets(self, name: str) -> list[Offset]:
        """Return the committed offsets of a connector."""
        return self._send(_Request(_path(name, "offsets")), _Offsets).offsets

    def definitions(self, plugin: str) -> list[Definition]:
        """Return the definitions of the configs of a plug-in; none from workers before 3.2."""
        request = _Request(f"/connector-plugins/{quote(plugin, safe='')}/config")
        try:
            return self._send(request, list[Definition])
        except ConnectError as error:
            if error.status == _NOT_FOUND:
                return []
            raise

    def validate(self, plugin: str, config: Mapping[str, str]) -> Validation:
        """Return what a plug-in says about a config; nothing changes."""
        path = f"/connector-plugins/{quote(plugin, safe='')}/config/validate"
        return self._send(_Request(path, "PUT", {**config, "connector.class": plugin}), Validation)

    def put_config(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector, or replace its config."""
        self._send(_Request(_path(name, "config"), "PUT", dict(config)), Any)

    def delete(self, name: str) -> None:
        """Delete a connector; its offsets and topics stay."""
        self._send(_Request(_path(name), "DELETE"), Any)

    def set_state(self, name: str, verb: str) -> None:
        """Change the state of a connector.

        Args:
            name: The connector.
            verb: Either "pause", "resume" or "stop".
        """
        assert verb in ("pause", "resume", "stop"), verb
        self._send(_Request(_path(name, verb), "PUT"), Any)

    def restart(self, name: str, *, only_failed: bool) -> None:
        """Restart a connector and its tasks; only what failed with `only_failed`."""
        query = urlencode({"includeTasks": "true", "onlyFailed": str(only_failed).lower()})
        self._send(_Request(f"{_path(name, 'restart')}?{query}", "POST"), Any)

    def restart_task(self, name: str, task: int) -> None:
        """Restart one task."""
        self._send(_Request(_path(name, f"tasks/{task}/restart"), "POST"), Any)

    def alter_offsets(self, name: str, offsets: Sequence[Offset]) -> str:
        """Set offsets of a stopped connector; return the message of the worker."""
        body = {"offsets": offsets}
        return self._send(_Request(_path(name, "offsets"), "PATCH", body), _Message).message

    def reset_offsets(self, name: str) -> str:
        """Remove all offsets of a stopped connector; return the message of the worker."""
        return self._send(_Request(_path(name, "offsets"), "DELETE"), _Message).message

    def _send(self, request: _Request, kind: type[T]) -> T:
        """Send a request, and decode the response.

        Raises:
            ConnectError: No worker responded, or the response is an error.
        """
        settings = self._settings
        body = None if request.body is None else msgspec.json.encode(request.body)
        headers = {"Accept": "application/json", **settings.headers}
        if body is not None:
            headers["Content-Type"] = "application/json"
        wanted = web.WebRequest(
            settings.url + request.path,
            headers,
            body,
            self._timeout_s,
            settings.tls,
            request.method,
            _RESPONSE_BYTES_MAX,
        )
        try:
            response = web.exchange(wanted)
        except OSError as error:
            raise ConnectError(
                f"Connect cluster {settings.name} was not reached: {error}"
            ) from None
        if not 200 <= response.status < 300:
            raise self._refusal(response)
        try:
            return msgspec.json.decode(response.body or b"null", type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConnectError(
                f"{wanted.url} did not respond like Kafka Connect ({error}): "
                "check the URL and its path",
                response.status,
            ) from None

    def _refusal(self, response: web.WebResponse) -> ConnectError:
        """Return the error of a response with an error status."""
        try:
            found = msgspec.json.decode(response.body, type=_Refusal).message
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found = ""
        text = f"Connect cluster {self.name} answered with status {response.status}"
        if found:
            text += f": {found[:_MESSAGE_CHARACTERS_MAX]}"
        if response.status == _CONFLICT:
            text += ". Workers answer so while their group rebalances: try again"
        elif response.status in (401, 403):
            text += ". Check the log-in in the file of --connect-config"
        return ConnectError(text, response.status)


def _path(name: str, rest: str = "") -> str:
    """Return the path of a connector, or of a part of it."""
    path = f"/connectors/{quote(name, safe='')}"
    return f"{path}/{rest}" if rest else path
