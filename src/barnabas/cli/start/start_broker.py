"""The work of `barnabas start`: read the configuration, run the broker, report the result."""

from __future__ import annotations

import errno
import gc
import logging
import os
import socket
import sys
from typing import TYPE_CHECKING

from barnabas.cli.common.open_files import OpenFilesError, raise_open_files_limit
from barnabas.cli.start.start_files import StartFiles
from barnabas.cli.start.start_log import FORMAT_KEY, LEVEL_KEY, set_up_log
from barnabas.cli.variables import without_variables
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.process import discard_standard_output
from barnabas.settings.key import ConfigError
from barnabas.settings.properties import PropertiesError, parse_properties

if TYPE_CHECKING:
    from barnabas.cli.start.start_options import StartOptions
    from barnabas.runtime.loop import ProcessControl, Runtime
    from barnabas.runtime.service_manager import ServiceManager
    from barnabas.server.process.first_topics import NewTopic

_log = logging.getLogger(__name__)

FAILED = 1
# Thresholds of the garbage collector. The first is the number of new objects that triggers a
# collection of the youngest generation. The second is the number of such collections that triggers
# one of the middle generation. The third is the number of those that triggers a full collection.
# A collection of a million objects takes 60 to 100 ms, and a large request creates as many. The
# middle generation is therefore collected at 200,000 objects (10 ms).
GC_THRESHOLDS = (50_000, 2, 350)
DEFAULT_DATA_DIR = "barnabas-data"


class StartError(Exception):
    """The reason why the broker does not start, as a message for the operator."""


def start_broker(options: StartOptions) -> int:
    """Run a broker until a signal stops it. Return the exit status."""
    if not __debug__:
        return _fail(
            "do not run with -O or PYTHONOPTIMIZE: the broker checks its invariants "
            "with assertions, which these options disable"
        )
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
    config = read_configuration(properties)
    topics = _first_topics(options)
    manager: ServiceManager | None = None

    def main(runtime: Runtime, control: ProcessControl) -> None:
        nonlocal manager
        manager = service_manager(runtime.timer, os.environ)
        manager.starting("starting: opening the logs and waiting for a controller")

        def on_running(address: str) -> None:
            if not topics:
                on_ready(address)
            elif broker.broker is None:
                control.fail(NodeFailedError("--topic requires a node that is a broker"))
            else:
                from barnabas.server.process.first_topics import FirstTopics

                FirstTopics(
                    broker.broker.dependencies,
                    runtime.timer,
                    lambda: on_ready(address),
                    control.fail,
                ).create(topics)

        def on_ready(address: str) -> None:
            try:
                start_files.on_ready(address)
            except OSError as error:
                control.fail(error)
                return
            _print_ready(address, broker.metrics_address)
            manager.ready(f"ready at {address}")
            _log_slow_python()
            # These modules are not needed for the first response, so import them afterwards.
            from barnabas.server.process.preload import Preloader, needed_modules

            has_authorizer = bool(config.parsed.string("authorizer.class.name"))
            names = needed_modules(has_authorizer=has_authorizer)
            Preloader(runtime.timer, names).start()

        def on_stop() -> None:
            manager.stopping("stopping: handing over partitions and closing the logs")
            broker.stop(control.finish)

        broker = Node(config, runtime, on_running, control.fail)
        control.on_stop(on_stop)
        start_files.watch(runtime, control)
        broker.start()

    try:
        run(main)
    except (StorageError, NodeFailedError) as error:
        return _fail(str(error), manager)
    except OSError as error:
        return _fail(_with_remedy(error), manager)
    return 0


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
    from barnabas.server.configs.endpoint import parse_address

    if parse_address(address) is None:
        raise StartError(f"--listen takes HOST:PORT, for example 127.0.0.1:9092, not {address!r}")
    return f"PLAINTEXT://{address}"
