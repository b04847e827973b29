"""The audit log: one JSON object for each change that a user made or was refused.

The newest entries stay in memory for the page. With a file, each entry is one line of it. The
console reads the end of that file when it starts, so that the page shows older entries too.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.cli.common.printable import json_line
from barnabas.cli.common.profiles import is_secret
from barnabas.cli.common.units import utc_text
from barnabas.runtime.disk import RealDisk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.runtime.clock import Clock
    from barnabas.runtime.disk import Disk, File

_log = logging.getLogger(__name__)

ENTRIES_MAX = 1_000
_TEXT_MAX = 500
_ROWS_MAX = 50
# The end of the file that is read at the start.
_READ_BYTES = 1024 * 1024
_HIDDEN = "(hidden)"
# What each entry has. Other lines of the file are left out.
_KEYS = {"time", "user", "source", "role", "address", "action", "fields", "result"}
# Changes whose other fields may contain records or secrets of connectors.
_PRIVATE = ("/produce", "/resend", "/connect")
_PUBLIC_FIELDS = (
    *("cluster", "connector", "from", "id", "name", "partition", "plugin", "task", "to", "topic"),
    "verb",
)
# Fields that are part of every form.
_ALWAYS = ("csrf", "here", "confirmed", "confirm")


class Actor(NamedTuple):
    """The user that sent a change, and the address of its browser."""

    user: str
    # The way in which the user logged in.
    source: str
    role: str
    address: str


class AuditLog:
    """Writes and remembers entries.

    Args:
        path: The file; None for entries in memory only.
        clock: Tells the time of an entry.
        disk: Has the file.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(self, path: str | None, clock: Clock, disk: Disk | None = None) -> None:
        self._clock = clock
        self.path = path
        # The newest entry first.
        self.entries: deque[dict[str, Any]] = deque(maxlen=ENTRIES_MAX)
        self._file: File | None = None
        # Whether the file may end within a line, because an entry was not written in full.
        self._is_cut = False
        if path is not None:
            self._file = (disk or RealDisk()).open(path)
            self._read(self._file)

    def _read(self, file: File) -> None:
        size = file.size()
        begin = max(0, size - _READ_BYTES)
        lines = file.read_at(size - begin, begin).split(b"\n")
        if lines[-1]:
            # The last entry is incomplete, for example because the disk was full.
            file.append(b"\n")
        for line in lines[1 if begin else 0 :]:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and entry.keys() >= _KEYS:
                self.entries.appendleft(entry)

    def add(
        self,
        actor: Actor,
        cluster: str,
        path: str,
        form: Mapping[str, str],
        result: str,
        **more: object,
    ) -> None:
        """Add an entry.

        Args:
            actor: The user that sent the change.
            cluster: The name of the cluster, or its bootstrap servers.
            path: The path of the change.
            form: The fields of the form; secrets in it are hidden.
            result: "done", "failed", "refused", "unknown" if the change may have been made, or
                "revealed" for what a mask hides.
            more: Further parts; None and empty ones are left out.
        """
        entry: dict[str, Any] = {
            "time": utc_text(self._clock.wall_ms()),
            **actor._asdict(),
            "cluster": cluster,
            "action": path.strip("/"),
            "fields": shown_fields(path, form),
            "result": result,
        }
        entry.update({key: _short(value) for key, value in more.items() if value})
        self.entries.appendleft(entry)
        if self._file is not None:
            line = ("\n" if self._is_cut else "") + json_line(entry) + "\n"
            try:
                self._file.append(line.encode("utf-8", "replace"))
                self._is_cut = False
            except OSError as error:
                self._is_cut = True
                _log.error("Audit entry not written path=%s error=%s", self.path, error)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def shown_fields(path: str, form: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a form without secrets, each at most 500 characters long.

    Args:
        path: The path of the change.
        form: The fields.
    """
    # The value of a config is secret if the config is, for example ssl.keystore.password.
    is_secret_config = any(is_secret(form.get(name, "")) for name in ("key", "config"))
    is_private = path.startswith(_PRIVATE)

    def is_hidden(name: str) -> bool:
        if is_private and name not in _PUBLIC_FIELDS:
            return True
        return is_secret(name) or (is_secret_config and name == "value")

    return {
        name: _HIDDEN if is_hidden(name) else _cut(value)
        for name, value in form.items()
        if name not in _ALWAYS and value
    }


def _short(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_short(each) for each in value[:_ROWS_MAX]]
    return value if isinstance(value, int | float | bool) else _cut(str(value))


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}… ({len(text)} characters)"
