"""Imports of modules in the background, once the broker is ready, or at once before a fork.

A start imports only the modules that the first response needs. Without this file, other modules
would be imported at their first use. Such an import fails if no file descriptor is free, or if an
upgrade has replaced the files of the running version. One module is imported in a turn of the loop,
so that requests are served in between.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
from collections import deque
from typing import TYPE_CHECKING

from barnabas.protocol.api_keys import request_class, response_class
from barnabas.protocol.api_table import API_ROWS
from barnabas.protocol.codec import compile_codecs
from barnabas.protocol.record_frame import metadata_record_class
from barnabas.protocol.record_table import RECORD_ROWS
from barnabas.record.compiled import CompiledReader
from barnabas.runtime.packages import MissingPackageError, needed_for
from barnabas.server.dispatch.served_apis import CONTROLLER_APIS, served_apis

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.clock import Timer


_log = logging.getLogger(__name__)

# Delay of the first import after the broker is ready, and between two imports.
_FIRST_MS = 1_000.0
_INTERVAL_MS = 10.0
# Delay after a failed import.
_RETRY_MS = 10_000.0
# Modules that functions of Barnabas or of Python's library import.
_OTHERS = (
    "barnabas.coordinator.group.classic.classic_group",
    "barnabas.coordinator.group.consumer.consumer_membership",
    "barnabas.coordinator.group.requests.member_requests",
    "barnabas.coordinator.group.share.share_membership",
    "barnabas.coordinator.group.streams.streams_heartbeat",
    "barnabas.network.channel",
    "barnabas.raft.driver.rpc",
    "barnabas.replication.fetcher.fetch_states",
    "barnabas.replication.fetcher.fetch_processing",
    "barnabas.replication.fetcher.leader_endpoint",
    "barnabas.replication.fetcher.follower_truncation",
    "barnabas.replication.fetcher.replica_fetcher",
    "barnabas.replication.fetcher.fetcher_manager",
    "barnabas.replication.config",
    "barnabas.replication.fetcher.leader_channels",
    "barnabas.replication.fetcher.local_replicas",
    "barnabas.replication.requests.preferred_replicas",
    "barnabas.replication.requests.delayed_writes",
    "barnabas.server.controller_access.controller_channel",
    "barnabas.server.quorum.node_principals",
    "barnabas.server.quorum.quorum_description",
    "barnabas.storage.log.batch_inspection",
    "barnabas.storage.log.log_reader",
    "copy",
    "ctypes",
    "dataclasses",
    "encodings.idna",
    "encodings.utf_16_be",
    "encodings.utf_16_le",
    "gzip",
    "shutil",
    "traceback",
)


# Modules of packages, with the features that need them.
_PACKAGES = {
    "cramjam": "compression by snappy, lz4 or zstd",
    "re2": "a regular expression",
    "xxhash": "a consumer group",
}


# The compiled record reader. An import by name would also import aiokafka's client.
COMPILED_READER = "aiokafka.record.default_records"


# Modules that a start imports, with all that they import.
_PROCESS = (
    "barnabas.metrics.catalogue",
    "barnabas.metrics.metrics_listener",
    "barnabas.network.connection_pool",
    "barnabas.raft.transport.channel_transport",
    "barnabas.runtime.loop",
    "barnabas.runtime.service_manager",
    "barnabas.runtime.system_calls",
    "barnabas.server.configs.configuration",
    "barnabas.server.controller_access.controller_access",
    "barnabas.server.controller_access.controller_registrant",
    "barnabas.server.controller_access.forwarding",
    "barnabas.server.process.broker_server",
    "barnabas.server.process.controller_listeners",
    "barnabas.server.process.controller_server",
    "barnabas.server.process.node",
    "barnabas.server.process.observation",
    "barnabas.server.quorum.broker_watch",
    "barnabas.server.quorum.probes",
    "barnabas.server.quorum.quorum_watch",
    "barnabas.server.startup.cluster_ids",
    "barnabas.server.startup.node_folders",
    "barnabas.controller.controller",
    "barnabas.controller.apis",
)
# Versions of an API before the last one that nodes use among each other.
_OLDER_VERSIONS = 2
# Check functions of the authorizer.
_CHECKS = "barnabas.server.security.authorizer.checks"


def needed_modules(*, has_authorizer: bool = False) -> list[str]:
    """Return the names of all modules that a running broker may import.

    Args:
        has_authorizer: whether the node has an authorizer.
    """
    served = [*served_apis(has_telemetry=True).items(), *CONTROLLER_APIS.items()]
    # Put dependencies of handlers first, so that each turn of the loop has little to import.
    names = [f"barnabas.protocol.messages.{API_ROWS[key].module}" for key, _ in served]
    names += [f"barnabas.protocol.records.{row[0]}" for row in RECORD_ROWS["metadata"].values()]
    names += [*_OTHERS, *_PACKAGES]
    names += [f"barnabas.server.handlers.{api.module}" for _, api in served]
    if has_authorizer:
        rights = [each for _, api in served for each in (api.right, api.controller_right) if each]
        names += [
            f"{_CHECKS}.{module}" for module in sorted({each.module for each in rights} - {""})
        ]
    return [*dict.fromkeys(names), COMPILED_READER]


def load_module(name: str) -> None:
    """Import a module from `needed_modules`.

    Raises:
        MissingPackageError: It belongs to a package that is not installed.
    """
    if name == COMPILED_READER:
        CompiledReader()
    elif name in _PACKAGES:
        with needed_for(_PACKAGES[name]):
            importlib.import_module(name)
    else:
        importlib.import_module(name)


def load_all() -> None:
    """Import what brokers and controllers may need, and compile the codecs of new versions.

    A process that others are forked from calls this. A missing package or module is left out,
    because the forked process reports it when it needs it.
    """
    for name in [*_PROCESS, *needed_modules(has_authorizer=True)]:
        with contextlib.suppress(MissingPackageError, ImportError):
            load_module(name)
    for key in {**served_apis(has_telemetry=True), **CONTROLLER_APIS}:
        for cls in (request_class(key), response_class(key)):
            first, last = cls.__versions__
            for version in range(max(first, last - _OLDER_VERSIONS), last + 1):
                compile_codecs(cls, version)
    for record in filter(None, map(metadata_record_class, RECORD_ROWS["metadata"])):
        for version in range(record.__versions__[0], record.__versions__[1] + 1):
            compile_codecs(record, version)


class Preloader:
    """Imports modules one after the other, and retries after errors."""

    def __init__(
        self, timer: Timer, names: list[str], load: Callable[[str], object] = load_module
    ) -> None:
        self._timer = timer
        self._load = load
        self._left = deque(names)
        self._count = len(names)

    def start(self) -> None:
        """Schedule the first import."""
        self._timer.call_later(_FIRST_MS, self._import_next)

    def _import_next(self) -> None:
        if not self._left:
            # The modules are permanent, so exclude them from garbage collection.
            gc.freeze()
            _log.info("Background imports finished: modules=%d", self._count)
            return
        delay_ms = _INTERVAL_MS
        try:
            self._load(self._left[0])
            self._left.popleft()
        except MissingPackageError as error:
            _log.warning("A package is missing: %s", error)
            self._left.popleft()
        except (OSError, ImportError) as error:
            _log.warning(
                "Background import failed, retrying: module=%s error=%s", self._left[0], error
            )
            delay_ms = _RETRY_MS
            self._left.rotate(-1)
        self._timer.call_later(delay_ms, self._import_next)
