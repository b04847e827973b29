"""The audit log: one JSON object for each change that a user made or was refused.

A change that cannot be recorded is not made: its begin is written before it, and its result after
it. If a result cannot be written, it is written with the next entry, before any further change.

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
    from collections.abc import Sequence

    from barnabas.runtime.clock import Clock
    from barnabas.runtime.disk import Disk, File

_log = logging.getLogger(__name__)

ENTRIES_MAX = 1_000
_TEXT_MAX = 500
_ROWS_MAX = 50
# Equal names of fields in an entry.
_VALUES_MAX = 50
# Entries that are kept until they can be written.
_UNWRITTEN_MAX = 1_000
# The result of a change that is about to be made. The page shows the one that follows.
BEGUN = "begun"
# The end of the file that is read at the start.
_READ_BYTES = 1024 * 1024
_HIDDEN = "(hidden)"
# What each entry has. Other lines of the file are left out.
_KEYS = {"time", "user", "source", "role", "address", "action", "fields", "result"}
# Changes whose other fields may contain records or secrets of connectors.
_PRIVATE = ("/produce", "/resend", "/connect")
_PUBLIC_FIELDS = (
    *("cluster", "connector", "failed", "from", "id", "name", "partition", "plugin", "task", "to"),
    *("topic", "verb"),
)
# Fields that are part of every form.
_ALWAYS = ("csrf", "here", "confirmed", "confirm")


class AuditError(RuntimeError):
    """An entry cannot be written; the text says why and what to do."""


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
        # Lines that could not be written until now, the oldest first.
        self._unwritten: deque[str] = deque(maxlen=_UNWRITTEN_MAX)
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
            is_entry = isinstance(entry, dict) and entry.keys() >= _KEYS
            if is_entry and entry["result"] != BEGUN:
                self.entries.appendleft(entry)

    def add(
        self,
        actor: Actor,
        cluster: str,
        path: str,
        form: Sequence[tuple[str, str]],
        result: str,
        **more: object,
    ) -> None:
        """Add an entry, and write it.

        Args:
            actor: The user that sent the change.
            cluster: The name of the cluster, or its bootstrap servers.
            path: The path of the change.
            form: The fields of the form; secrets in it are hidden.
            result: BEGUN before a change is made; then "done", "failed", "refused", "unknown" if
                the change may have been made, or "revealed" for what a mask hides.
            more: Further parts; None and empty ones are left out.

        Raises:
            AuditError: The entry cannot be written now. That of a begin is forgotten; others are
                written later.
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
        if result != BEGUN:
            self.entries.appendleft(entry)
        if self._file is None:
            return
        line = json_line(entry) + "\n"
        try:
            self._write(self._file, line)
        except OSError as error:
            if result != BEGUN:
                self._unwritten.append(line)
            _log.error("Audit entry not written path=%s error=%s", self.path, error)
            raise AuditError(
                f"the audit log {self.path} cannot be written ({error.strerror or error}), and the "
                f"console makes no change that it cannot record: the operator of the console has "
                f"to make room on its disk, or to give it the right to write there"
            ) from error

    def _write(self, file: File, line: str) -> None:
        """Write the lines that are not written yet, and a new one.

        Raises:
            OSError: They cannot be written, or only a part of them.
        """
        text = ("\n" if self._is_cut else "") + "".join((*self._unwritten, line))
        self._is_cut = True
        file.append(text.encode("utf-8", "replace"))
        self._is_cut = False
        self._unwritten.clear()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def shown_fields(path: str, form: Sequence[tuple[str, str]]) -> dict[str, str | list[str]]:
    """Return the fields of a form without secrets, each at most 500 characters long.

    Args:
        path: The path of the change.
        form: The fields. Several of one name become a list, of at most 50.
    """
    # The value of a config is secret if the config is, for example ssl.keystore.password.
    is_secret_config = any(is_secret(value) for name, value in form if name in ("key", "config"))
    is_private = path.startswith(_PRIVATE)

    def is_hidden(name: str) -> bool:
        if is_private and name not in _PUBLIC_FIELDS:
            return True
        return is_secret(name) or (is_secret_config and name == "value")

    values: dict[str, list[str]] = {}
    for name, value in form:
        if name not in _ALWAYS and value:
            values.setdefault(name, []).append(_HIDDEN if is_hidden(name) else _cut(value))
    return {_cut(name): _one_or_all(found) for name, found in values.items()}


def _one_or_all(values: list[str]) -> str | list[str]:
    if len(values) == 1:
        return values[0]
    more = len(values) - _VALUES_MAX
    return values[:_VALUES_MAX] + ([f"… and {more} more"] if more > 0 else [])


def _short(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_short(each) for each in value[:_ROWS_MAX]]
    return value if isinstance(value, int | float | bool) else _cut(str(value))


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}… ({len(text)} characters)"
