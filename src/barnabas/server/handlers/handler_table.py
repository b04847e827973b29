"""Handlers of a node by API key, each imported at the first request for its API."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from barnabas.protocol.api_keys import api_row, request_class, response_class

if TYPE_CHECKING:
    from barnabas.server.dispatch.request import Entry, Handle
    from barnabas.server.dispatch.request_statistics import RequestStatistics
    from barnabas.server.handlers.dependencies import NodeDependencies


class HandlerTable:
    """Handlers by API key. A handler is imported and created at the first request for its API."""

    __slots__ = ("_dependencies", "_ready", "_statistics")

    def __init__(self, dependencies: NodeDependencies, statistics: RequestStatistics) -> None:
        """Args:
        dependencies: the dependencies of the handlers.
        statistics: statistics of the whole process. A combined broker and controller has two
            tables.
        """
        self._dependencies = dependencies
        # Entries of the APIs that have had a request, by API key.
        self._ready: dict[int, Entry] = {}
        self._statistics = statistics

    def find(self, api_key: int) -> Entry | None:
        """Return versions, request class, handler and statistics of an API; None if not served."""
        entry = self._ready.get(api_key)
        if entry is None:
            api = self._dependencies.served.get(api_key)
            if api is None:
                return None
            module = importlib.import_module(f"barnabas.server.handlers.{api.module}")
            handle: Handle = getattr(module, api.function)(self._dependencies)
            guard = self._dependencies.guard
            if guard is not None:
                handle = guard.wrap(api_key, handle)
            statistics = self._statistics.of(
                api_key, api_row(api_key).name, api.last_version, response_class(api_key)
            )
            entry = (
                api.first_version,
                api.last_version,
                request_class(api_key),
                handle,
                statistics,
            )
            self._ready[api_key] = entry
        return entry
