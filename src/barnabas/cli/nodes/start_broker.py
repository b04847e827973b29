"""The work of `barnabas start`: read the configuration, run the broker, report the result.

The log goes to standard error, as text or as JSON; by default it has only warnings. The options for
tests add a temporary directory, a ready file and --exit-with. The temporary directory is removed
when the broker ends, unless by SIGKILL. With --exit-with, the broker ends with another process. It
then needs no clean stop if its data is deleted anyway.
"""

from __future__ import annotations

import errno
import gc
import logging
import os
import signal
import socket
import sys
import textwrap
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from barnabas.cli.common.printable import json_line, printable, printable_lines
from barnabas.cli.common.variables import without_variables
from barnabas.runtime import system_calls
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.process import HANGUP, discard_standard_output
from barnabas.runtime.system_calls import request_parent_death_signal
from barnabas.settings.key import ConfigError
from barnabas.settings.properties import PropertiesError, parse_properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.cli.nodes.registry_child import RegistryChild, RegistryOptions
    from barnabas.cli.nodes.start_options import StartOptions
    from barnabas.runtime.clock import Timer
    from barnabas.runtime.loop import ProcessControl, Runtime
    from barnabas.runtime.process import ParentWatch
    from barnabas.runtime.service_manager import ServiceManager
    from barnabas.server.process.first_topics import NewTopic
    from barnabas.server.process.node import Node


_log = logging.getLogger(__name__)

FAILED = 1
# Thresholds of the garbage collector. The first is the number of new objects that triggers a
# collection of the youngest generation. The second is the number of such collections that triggers
# one of the middle generation. The third is the number of those that triggers a full collection.
# A collection of a million objects takes 60 to 100 ms, and a large request creates as many. The
# middle generation is therefore collected at 200,000 objects (10 ms).
GC_THRESHOLDS = (50_000, 2, 350)
DEFAULT_DATA_DIR = "barnabas-data"
FORMAT_KEY = "barnabas.log.format"
_REGISTRY_PREFIX = "barnabas.registry."
LEVEL_KEY = "barnabas.log.level"


class StartError(Exception):
    """The reason why the broker does not start, as a message for the operator."""


def start_broker(options: StartOptions) -> int:
    """Run a broker until a signal stops it. Return the exit status."""
    if not __debug__:
        return _fail(
            "do not run with -O or PYTHONOPTIMIZE: the broker checks its invariants "
            "with assertions, which these options disable"
        )
    if not system_calls.CAN_RUN_BROKER:
        return _fail(system_calls.NO_BROKER)
    start_files: StartFiles | None = None
    try:
        _check_together(options)
        start_files = StartFiles(options)
        properties = without_variables(_properties(options, start_files.temporary_directory))
        set_up_log(properties.get(FORMAT_KEY, "text"), properties.get(LEVEL_KEY, "warning"))
        raise_open_files_limit()
        return _run(properties, options, start_files)
    except (StartError, ConfigError, PropertiesError, OpenFilesError) as error:
        return _fail(str(error))
    except OSError as error:
        return _fail(_with_remedy(error))
    finally:
        if start_files is not None:
            start_files.close()


def _run(properties: dict[str, str], options: StartOptions, start_files: StartFiles) -> int:
    from barnabas.runtime.loop import run
    from barnabas.runtime.service_manager import service_manager
    from barnabas.server.configs.configuration import read_configuration
    from barnabas.server.process.node import Node
    from barnabas.server.startup.node_failure import NodeFailedError
    from barnabas.storage.errors import StorageError

    _collect_garbage()
    of_registry = _registry_options(properties)
    config = read_configuration(properties)
    topics = _first_topics(options)
    manager: ServiceManager | None = None
    registry: RegistryChild | None = None

    def main(runtime: Runtime, control: ProcessControl) -> None:
        nonlocal manager, registry
        manager = service_manager(runtime.timer, os.environ)
        manager.starting("starting: opening the logs and waiting for a controller")

        def on_running(address: str) -> None:
            if topics:
                on_created = partial(on_ready, address)
                _create_topics(topics, broker, runtime.timer, on_created, control.fail)
            else:
                on_ready(address)

        def on_ready(address: str) -> None:
            try:
                start_files.on_ready(address)
            except OSError as error:
                control.fail(error)
                return
            _print_ready(address, broker.metrics_address)
            manager.ready(f"ready at {address}")
            if registry is not None:
                registry.start(address)
            _log_slow_python()
            # These modules are not needed for the first response, so import them afterwards.
            from barnabas.server.process.preload import Preloader, needed_modules

            has_authorizer = bool(config.parsed.string("authorizer.class.name"))
            names = needed_modules(has_authorizer=has_authorizer)
            Preloader(runtime.timer, names).start()

        def on_stop() -> None:
            manager.stopping("stopping: handing over partitions and closing the logs")
            if registry is not None:
                registry.stop(lambda: broker.stop(control.finish))
            else:
                broker.stop(control.finish)

        broker = Node(config, runtime, on_running, control.fail)
        if of_registry is not None:
            registry = _registry_child(of_registry, runtime, control)
        control.on_stop(on_stop)
        start_files.watch(runtime, control)
        broker.start()

    try:
        run(main)
    except (StorageError, NodeFailedError, StartError) as error:
        return _fail(str(error), manager)
    except OSError as error:
        return _fail(_with_remedy(error), manager)
    finally:
        if registry is not None:
            registry.kill()
    return 0


def _registry_options(properties: dict[str, str]) -> RegistryOptions | None:
    """Take the keys of a registry out of the properties; return None if there are none."""
    if not any(name.startswith(_REGISTRY_PREFIX) for name in properties):
        return None
    from barnabas.cli.nodes.registry_child import RegistryOptions, take_registry_properties

    log_format = properties.get(FORMAT_KEY, "text")
    log_level = properties.get(LEVEL_KEY, "warning")
    return RegistryOptions(take_registry_properties(properties), log_format, log_level)


def _registry_child(
    options: RegistryOptions, runtime: Runtime, control: ProcessControl
) -> RegistryChild:
    from barnabas.cli.nodes.registry_child import RegistryChild

    def on_ready(url: str) -> None:
        try:
            sys.stdout.write(f"registry {url}\n")
            sys.stdout.flush()
        except OSError:
            discard_standard_output()

    def on_failed(reason: str) -> None:
        control.fail(StartError(reason))

    return RegistryChild(options, runtime.timer, on_ready, on_failed)


def _create_topics(
    topics: list[NewTopic],
    node: Node,
    timer: Timer,
    on_created: Callable[[], None],
    on_failed: Callable[[BaseException], None],
) -> None:
    """Create the topics of --topic on a node that is ready."""
    from barnabas.server.process.first_topics import FirstTopics
    from barnabas.server.startup.node_failure import NodeFailedError

    if node.broker is None:
        on_failed(NodeFailedError("--topic requires a node that is a broker"))
    else:
        dependencies = node.broker.dependencies
        FirstTopics(dependencies, timer, on_created, on_failed).create(topics)


def _first_topics(options: StartOptions) -> list[NewTopic]:
    """Return the topics of --topic.

    Raises:
        StartError: A topic cannot be read.
    """
    if not options.topics:
        # Most starts have none, so they do not import the module.
        return []
    from barnabas.server.process.first_topics import TopicError, parse_topic

    try:
        return [parse_topic(text) for text in options.topics]
    except TopicError as error:
        raise StartError(f"--topic: {error}") from error


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


def _print_ready(address: str, metrics_address: str | None) -> None:
    # The logs and the metadata also live as long as the broker.
    gc.freeze()
    try:
        sys.stdout.write(f"ready {address}\n")
        if metrics_address is not None:
            sys.stdout.write(f"metrics {metrics_address}\n")
        sys.stdout.flush()
    except OSError as error:
        # A broker does not need its output.
        discard_standard_output()
        _log.warning("Standard output cannot be written: %s", error.strerror)


def _with_remedy(error: OSError) -> str:
    remedies = {
        errno.EADDRINUSE: "stop the program that uses this address, or use another port: --listen "
        "HOST:PORT (port 0 takes any free port)",
        errno.EADDRNOTAVAIL: "this machine does not have this address; use another one: --listen "
        "HOST:PORT",
        errno.EACCES: "use a directory or port for which this user has permission",
        errno.EPERM: "use a directory or port for which this user has permission",
        errno.ENOTDIR: "a file with this name exists; use another directory: --data-dir DIR",
        errno.EEXIST: "a file with this name exists; use another directory: --data-dir DIR",
        errno.EROFS: "the file system is read-only; use another directory: --data-dir DIR",
        errno.ENOSPC: "free disk space, or use a directory on another disk: --data-dir DIR",
    }
    remedy = remedies.get(error.errno or 0)
    if isinstance(error, socket.gaierror):
        remedy = "use a name or address of this machine: --listen HOST:PORT"
    reason = error.strerror or str(error)
    text = f"{error.filename}: {reason}" if error.filename else reason
    return f"{text}; {remedy}" if remedy else text


def _fail(text: str, manager: ServiceManager | None = None) -> int:
    sys.stderr.write(f"barnabas: {text}\n")
    if manager is not None:
        manager.failed(text)
    return FAILED


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
            text = RealDisk().read(options.properties_file).decode("latin-1")
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
        f"{_REGISTRY_PREFIX}listener": options.registry,
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


def _listeners(address: str) -> str:
    from barnabas.server.configs.endpoints import parse_address

    if parse_address(address) is None:
        raise StartError(f"--listen takes HOST:PORT, for example 127.0.0.1:9092, not {address!r}")
    return f"PLAINTEXT://{address}"


_NAME = "barnabas-temporary-"


class StartFiles:
    """Creates the files that `options` request, and removes them in `close`.

    Raises:
        OSError: The temporary directory cannot be created, or the old ready file not removed.
    """

    def __init__(self, options: StartOptions) -> None:
        self._options = options
        self._watch: ParentWatch | None = None
        # The data directory that was created here; None if there is none.
        self.temporary_directory: str | None = None
        self._remove_ready_file()
        if options.temporary:
            self.temporary_directory = _make_directory()

    def watch(self, runtime: Runtime, control: ProcessControl) -> None:
        """Make the process end when the watched process ends.

        With --temporary, it also ends when the terminal closes.
        """
        options = self._options
        is_hangup_ignored = signal.getsignal(HANGUP) is signal.SIG_IGN
        if options.temporary and not is_hangup_ignored:
            control.on_signal(HANGUP, control.request_stop)
        if options.exit_with is None:
            return
        from barnabas.runtime.process import WAKING_SIGNAL, ParentWatch

        throws_away = options.temporary or options.remove_orphaned is not None
        self._watch = ParentWatch(
            runtime.timer,
            options.exit_with,
            control.finish if throws_away else control.request_stop,
        )
        control.on_signal(WAKING_SIGNAL, self._watch.check)
        self._watch.start()

    def on_ready(self, address: str) -> None:
        """Write the ready file; ask the kernel for a signal when the parent process ends.

        Raises:
            OSError: The file cannot be written.
        """
        path = self._options.ready_file
        if path is not None:
            # The readers of the file run now, so the file need not survive a power loss.
            disk = RealDisk()
            disk.write_atomically(disk.absolute(path), f"{address}\n".encode(), sync=False)
        if self._watch is not None:
            from barnabas.runtime.process import WAKING_SIGNAL

            request_parent_death_signal(WAKING_SIGNAL)
            # The parent may have ended before the request for a signal.
            self._watch.check()

    def close(self) -> None:
        """Remove the ready file and the temporary directory.

        If the watched process has ended, also remove the directory of --remove-orphaned.
        """
        self._remove_ready_file()
        left = [self.temporary_directory]
        if self._watch is not None and self._watch.has_ended:
            left.append(self._options.remove_orphaned)
        for directory in left:
            if directory is not None:
                import shutil

                shutil.rmtree(directory, ignore_errors=True)

    def _remove_ready_file(self) -> None:
        path = self._options.ready_file
        if path is not None and RealDisk().exists(path):
            RealDisk().remove(path)


def _make_directory() -> str:
    """Create an empty directory for this user only; importing tempfile would take 20 ms."""
    parent = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - the name below it is random
    path = f"{parent}/{_NAME}{os.urandom(8).hex()}"
    os.mkdir(path, 0o700)  # noqa: PTH102 - paths are strings here
    return path


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
