"""What `barnabas start` does: reads the configuration, runs the broker, says how it went."""

from __future__ import annotations

import errno
import gc
import logging
import sys
from typing import TYPE_CHECKING

from barnabas.runtime.disk import RealDisk
from barnabas.settings.key import ConfigError
from barnabas.settings.properties import PropertiesError, parse_properties

if TYPE_CHECKING:
    from barnabas.cli.start_options import StartOptions
    from barnabas.runtime.loop import ProcessControl, Runtime

_log = logging.getLogger("barnabas")

FAILED = 1
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
GC_THRESHOLDS = (50_000, 20, 50)
DEFAULT_DATA_DIR = "barnabas-data"


class StartError(Exception):
    """Why the broker does not start, in words for the operator."""


def start_broker(options: StartOptions) -> int:
    """Run a broker until it is told to stop; returns the exit status."""
    if not __debug__:
        return _complain(
            "do not run with -O or PYTHONOPTIMIZE: the broker checks its own "
            "invariants by assertions and stops rather than serve a wrong log"
        )
    logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT, stream=sys.stderr)
    try:
        return _run(_properties(options))
    except (StartError, ConfigError, PropertiesError) as error:
        return _complain(str(error))


def _run(properties: dict[str, str]) -> int:
    from barnabas.runtime.loop import run
    from barnabas.server.broker import Broker
    from barnabas.server.configuration import read_configuration
    from barnabas.storage.errors import StorageError

    config = read_configuration(properties)
    failure: list[BaseException] = []

    def main(runtime: Runtime, control: ProcessControl) -> None:
        def on_failed(error: BaseException) -> None:
            failure.append(error)
            control.finish()

        broker = Broker(config, runtime, _say_ready, on_failed)
        control.on_stop(lambda: broker.stop(control.finish))
        broker.start()

    try:
        run(main)
    except StorageError as error:
        return _complain(str(error))
    except OSError as error:
        return _complain(_with_remedy(error))
    if failure:
        return _complain(str(failure[0]))
    return 0


def _say_ready(address: str) -> None:
    # What is there now stays, so that no collection need look at it again; and a collection over
    # many partitions takes milliseconds, while most garbage dies by its reference counts.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    sys.stdout.write(f"ready {address}\n")
    sys.stdout.flush()


def _with_remedy(error: OSError) -> str:
    remedies = {
        errno.EADDRINUSE: "stop what listens there, or take another port with --listen HOST:PORT "
        "(port 0 is any free one)",
        errno.EADDRNOTAVAIL: "this machine has no such address; --listen HOST:PORT takes another",
        errno.EACCES: "choose a directory or a port that this user may use",
    }
    remedy = remedies.get(error.errno or 0)
    return f"{error}; {remedy}" if remedy else str(error)


def _complain(text: str) -> int:
    sys.stderr.write(f"barnabas: {text}\n")
    return FAILED


def _properties(options: StartOptions) -> dict[str, str]:
    """The file's keys, with the command line's over them."""
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
    if options.listen is not None:
        properties["listeners"] = _listeners(options.listen)
    if options.data_dir is not None:
        properties.pop("log.dir", None)
        properties["log.dirs"] = options.data_dir
    elif "log.dirs" not in properties and "log.dir" not in properties:
        sys.stderr.write(
            f"barnabas: data goes to ./{DEFAULT_DATA_DIR} (--data-dir DIR changes that)\n"
        )
        properties["log.dirs"] = DEFAULT_DATA_DIR
    return properties


def _listeners(address: str) -> str:
    from barnabas.server.endpoint import parse_address

    if parse_address(address) is None:
        raise StartError(f"--listen takes HOST:PORT, for example 127.0.0.1:9092, not {address!r}")
    return f"PLAINTEXT://{address}"
