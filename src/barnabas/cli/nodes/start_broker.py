"""The work of `barnabas start`: read the configuration, run the broker, report the result.

The log goes to standard error, as text or as JSON; by default it has only warnings. The options for
tests are in `start_files`. With --brokers, `start_node` runs several processes.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import textwrap
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from barnabas.cli.common.printable import json_line, printable, printable_lines
from barnabas.cli.common.variables import without_variables
from barnabas.cli.nodes.start_files import StartFiles
from barnabas.cli.nodes.start_options import (
    FORMAT_KEY,
    LEVEL_KEY,
    REGISTRY_PREFIX,
    first_topics,
    registry_options,
)
from barnabas.cli.nodes.start_report import StartError, fail_start, print_ready, with_remedy
from barnabas.runtime import system_calls
from barnabas.runtime.disk import RealDisk
from barnabas.server.configs.node_keys import BROKERS_KEY, MEMBERS_KEY
from barnabas.settings.key import ConfigError
from barnabas.settings.properties import PropertiesError, parse_properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.cli.nodes.registry_child import RegistryChild
    from barnabas.cli.nodes.start_options import StartOptions
    from barnabas.runtime.clock import Timer
    from barnabas.runtime.loop import ProcessControl, Runtime
    from barnabas.runtime.service_manager import ServiceManager
    from barnabas.server.configs.configuration import Configuration
    from barnabas.server.process.first_topics import NewTopic
    from barnabas.server.process.node import Node


_log = logging.getLogger(__name__)

# Thresholds of the garbage collector. The first is the number of new objects that triggers a
# collection of the youngest generation. The second is the number of such collections that triggers
# one of the middle generation. The third is the number of those that triggers a full collection.
# A collection of a million objects takes 60 to 100 ms, and a large request creates as many. The
# middle generation is therefore collected at 40,000 objects (4 ms).
GC_THRESHOLDS = (10_000, 2, 1_750)
DEFAULT_DATA_DIR = "barnabas-data"


def start_broker(options: StartOptions) -> int:
    """Run a broker until a signal stops it. Return the exit status."""
    if not __debug__:
        return fail_start(
            "do not run with -O or PYTHONOPTIMIZE: the broker checks its invariants "
            "with assertions, which these options disable"
        )
    if not system_calls.CAN_RUN_BROKER:
        return fail_start(system_calls.NO_BROKER)
    start_files: StartFiles | None = None
    try:
        _check_together(options)
        start_files = StartFiles(options)
        properties = without_variables(_properties(options, start_files.temporary_directory))
        set_up_log(properties.get(FORMAT_KEY, "text"), properties.get(LEVEL_KEY, "warning"))
        raise_open_files_limit()
        if properties.get(BROKERS_KEY):
            # Imported only for nodes of several processes.
            from barnabas.cli.nodes.start_node import run_node

            return run_node(properties, options, start_files)
        return _run(properties, options, start_files)
    except (StartError, ConfigError, PropertiesError, OpenFilesError) as error:
        return fail_start(str(error))
    except OSError as error:
        return fail_start(with_remedy(error))
    finally:
        if start_files is not None:
            start_files.close()


def _run(properties: dict[str, str], options: StartOptions, start_files: StartFiles) -> int:
    from barnabas.runtime.loop import run
    from barnabas.runtime.service_manager import service_manager
    from barnabas.server.configs.config import log_directories
    from barnabas.server.configs.configuration import read_configuration
    from barnabas.server.process.node import Node
    from barnabas.server.startup.node_failure import NodeFailedError
    from barnabas.server.startup.node_folders import check_no_node
    from barnabas.storage.errors import StorageError

    _collect_garbage()
    of_registry = registry_options(properties)
    topics, members = first_topics(options), _take_members(properties)
    config = read_configuration(properties)
    manager: ServiceManager | None = None
    registry: RegistryChild | None = None

    def main(runtime: Runtime, control: ProcessControl) -> None:
        nonlocal manager, registry
        manager = service_manager(runtime.timer, os.environ)
        manager.starting("starting: opening the logs and waiting for a controller")

        def on_running(address: str) -> None:
            if topics:
                on_created = partial(on_ready, address)
                _create_topics(topics, members, broker, runtime.timer, on_created, control.fail)
            else:
                on_ready(address)

        def on_ready(address: str) -> None:
            try:
                start_files.on_ready(address)
            except OSError as error:
                control.fail(error)
                return
            print_ready(address, broker.metrics_address)
            manager.ready(f"ready at {address}")
            if registry is not None:
                registry.start(address)
            _log_slow_python()
            _import_later(config, runtime.timer)

        def on_stop() -> None:
            manager.stopping("stopping: handing over partitions and closing the logs")
            if registry is not None:
                registry.stop(lambda: broker.stop(control.finish))
            else:
                broker.stop(control.finish)

        if not members:
            check_no_node(runtime.disk, log_directories(config.parsed))
        broker = Node(config, runtime, on_running, control.fail, has_supervisor=bool(members))
        if of_registry is not None:
            from barnabas.cli.nodes.registry_child import registry_child

            registry = registry_child(of_registry, runtime, control)
        control.on_stop(on_stop)
        start_files.watch(runtime, control)
        broker.start()

    try:
        run(main)
    except (StorageError, NodeFailedError, StartError) as error:
        return fail_start(str(error), manager)
    except OSError as error:
        return fail_start(with_remedy(error), manager)
    finally:
        if registry is not None:
            registry.kill()
    return 0


def _import_later(config: Configuration, timer: Timer) -> None:
    """Import the modules that are not needed for the first response."""
    from barnabas.server.process.preload import Preloader, needed_modules

    has_authorizer = bool(config.parsed.string("authorizer.class.name"))
    Preloader(timer, needed_modules(has_authorizer=has_authorizer)).start()


def _take_members(properties: dict[str, str]) -> frozenset[int]:
    """Take out the ids of the brokers of this node; they are empty for a single process."""
    text = properties.pop(MEMBERS_KEY, "")
    return frozenset(int(each) for each in text.split(",") if each)


def _create_topics(
    topics: list[NewTopic],
    members: frozenset[int],
    node: Node,
    timer: Timer,
    on_created: Callable[[], None],
    on_failed: Callable[[BaseException], None],
) -> None:
    """Create the topics of --topic on a node that is ready.

    Args:
        topics: the topics.
        members: ids of the brokers that must serve before.
        node: the node.
        timer: runs the checks.
        on_created: called when the topics can be used.
        on_failed: called with the reason instead.
    """
    from barnabas.server.process.first_topics import FirstTopics
    from barnabas.server.startup.node_failure import NodeFailedError

    if node.broker is None:
        on_failed(NodeFailedError("--topic requires a node that is a broker"))
    else:
        dependencies = node.broker.dependencies
        FirstTopics(dependencies, timer, on_created, on_failed).create(topics, members)


def _collect_garbage() -> None:
    # Imported objects live forever, so freeze excludes them from collections. A collection over
    # many partitions takes milliseconds, while most garbage is freed by its reference count.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()


def _log_slow_python() -> None:
    if not _log.isEnabledFor(logging.INFO):
        # Most starts need neither the module nor the configuration of Python's build.
        return
    from barnabas.runtime.interpreter import UNOPTIMIZED, is_optimized

    if not is_optimized():
        _log.info("Slow Python: %s", UNOPTIMIZED)


def _check_together(options: StartOptions) -> None:
    """Check that the options do not contradict each other.

    Raises:
        StartError: Two options contradict each other.
    """
    if options.temporary and options.data_dir is not None:
        raise StartError("--temporary creates its own directory: omit --data-dir")
    if options.port is not None and options.listen is not None:
        raise StartError("--port is short for --listen 127.0.0.1:PORT: give only one of them")


def _properties(options: StartOptions, temporary_directory: str | None) -> dict[str, str]:
    """Return the keys of the file, overridden by those of the command line."""
    properties: dict[str, str] = {}
    if options.properties_file is not None:
        try:
            text = _read_file(options.properties_file).decode("latin-1")
        except OSError as error:
            raise StartError(f"cannot read {options.properties_file}: {error.strerror}") from error
        properties = parse_properties(text)
    for setting in options.settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise StartError(f"--set takes KEY=VALUE, not {setting!r}")
        properties[key.strip()] = value
    given = {
        "metrics.listener": options.metrics,
        f"{REGISTRY_PREFIX}listener": options.registry,
        BROKERS_KEY: options.brokers,
        FORMAT_KEY: options.log_format,
        LEVEL_KEY: options.log_level,
    }
    properties.update({key: value for key, value in given.items() if value is not None})
    listen = options.listen if options.port is None else f"127.0.0.1:{options.port}"
    if listen is not None:
        properties["listeners"] = _listeners(listen)
    if temporary_directory is not None:
        for key in ("log.dir", "metadata.log.dir"):
            properties.pop(key, None)
        properties["log.dirs"] = temporary_directory
        properties.setdefault("group.initial.rebalance.delay.ms", "0")
    elif options.data_dir is not None:
        properties.pop("log.dir", None)
        properties["log.dirs"] = options.data_dir
    elif "log.dirs" not in properties and "log.dir" not in properties:
        sys.stderr.write(
            f"barnabas: the data directory is ./{DEFAULT_DATA_DIR} (--data-dir DIR changes it)\n"
        )
        properties["log.dirs"] = DEFAULT_DATA_DIR
    return properties


def _read_file(path: str) -> bytes:
    return sys.stdin.buffer.read() if path == "-" else RealDisk().read(path)


def _listeners(address: str) -> str:
    from barnabas.server.configs.endpoints import parse_address

    if parse_address(address) is None:
        raise StartError(f"--listen takes HOST:PORT, for example 127.0.0.1:9092, not {address!r}")
    return f"PLAINTEXT://{address}"


# Before each line of a traceback.
_INDENT = "    "


class TextFormatter(logging.Formatter):
    """Formatter with one line per message; the indented lines of a traceback follow it.

    Messages contain text from clients and peers. A newline in it must not start a line that looks
    like a message of the broker, and no escape sequence may reach a terminal.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the formatted lines."""
        stamp = self.formatTime(record)
        line = f"{stamp} {record.levelname} {record.name}: {printable(record.getMessage())}"
        if record.exc_info:
            trace = printable_lines(self.formatException(record.exc_info))
            line += "\n" + textwrap.indent(trace, _INDENT, lambda _: True)
        return line


class JsonFormatter(logging.Formatter):
    """Formatter with one JSON object per line.

    Its members are timestamp (ISO 8601, UTC), level, logger, message and exception.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the formatted line."""
        line = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json_line(line)


def set_up_log(log_format: str, level: str) -> None:
    """Write log messages of at least `level`.

    An invalid level or format is reported later, when the configuration is read.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    known = {"debug": logging.DEBUG, "info": logging.INFO, "error": logging.ERROR}
    logging.basicConfig(level=known.get(level, logging.WARNING), handlers=[handler])


# A smaller limit is too low for thousands of connections and hundreds of partitions.
FEW = 4096
# A node does not start with a smaller limit. It uses about 40 files itself, with its reserve. The
# others are for connections of clients and other nodes, and for logs.
NEEDED = 128
_REMEDY = "raise the limit (ulimit -Hn, or LimitNOFILE= of the service)"


class OpenFilesError(Exception):
    """The limit of open files is too low for a node."""


def raise_open_files_limit() -> int | None:
    """Raise the limit to the hard limit; warn if that is low.

    Returns:
        The number of files that may be open; None for no limit.

    Raises:
        OpenFilesError: the limit is too low for a node.
    """
    soft, reason = system_calls.raise_open_files_limit()
    if reason is not None:
        _log.debug("The limit of open files could not be raised to the hard limit: %s", reason)
    if soft is not None and soft < NEEDED:
        raise OpenFilesError(
            f"at most {soft} files and connections can be open at once, and a node needs at least "
            f"{NEEDED}: {_REMEDY}"
        )
    if soft is not None and soft < FEW:
        _log.warning(
            "At most %d files and connections can be open at once; %s for more partitions or "
            "clients",
            soft,
            _REMEDY,
        )
    return soft
