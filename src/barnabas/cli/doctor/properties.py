"""Diagnosis of a broker's properties file."""

from __future__ import annotations

import difflib
import errno
import logging
import socket
from typing import TYPE_CHECKING

from barnabas.cli.doctor.dangerous import dangers
from barnabas.cli.doctor.directory import examine_directory
from barnabas.runtime.disk import RealDisk
from barnabas.server.configs.configuration import BROKER_KEYS, read_configuration
from barnabas.server.quotas.connection_bounds import listener_keys
from barnabas.settings.key import ConfigError
from barnabas.settings.properties import PropertiesError, parse_properties
from barnabas.storage.config import TOPIC_CONFIGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.server.configs.configuration import Configuration
    from barnabas.settings.definition import ParsedConfig

__all__ = ["examine_properties"]

# Alternative names of Kafka keys that the broker accepts -> the names it uses.
_RENAMED = {"broker.id": "node.id"}
_ZOOKEEPER = "zookeeper."
_CLOSE = 0.8


def examine_properties(path: str, diagnosis: Diagnosis) -> None:
    """Examine the file, and the listeners and directories that it names."""
    text = RealDisk().read(path).decode("latin-1")
    try:
        given = parse_properties(text)
    except PropertiesError as error:
        diagnosis.wrong(f"{path}: {error}", "write the escape with four hexadecimal digits")
        return
    _examine_repeats(text, given, diagnosis)
    given = {_RENAMED.get(name, name): value for name, value in given.items()}
    good = {name: value for name, value in given.items() if _is_good(name, value, diagnosis)}
    # Report unknown keys first: that works even if the values contradict each other.
    _examine_unknown(BROKER_KEYS.parse(good), diagnosis)
    configuration = _read(good, diagnosis)
    if configuration is None:
        return
    values = {
        key.name: value
        for key in BROKER_KEYS
        if (value := configuration.parsed.text(key.name)) is not None
    }
    for what, remedy in dangers(values, set(given), brokers=_voters(configuration)):
        diagnosis.note(what, remedy)
    _examine_listeners(configuration, diagnosis)
    _examine_directories(configuration, diagnosis)


def _examine_repeats(text: str, given: Mapping[str, str], diagnosis: Diagnosis) -> None:
    seen: dict[str, int] = {}
    for line in text.splitlines():
        key = line.strip().partition("=")[0].strip()
        seen[key] = seen.get(key, 0) + 1
    for key, count in seen.items():
        if count > 1 and key in given:
            diagnosis.note(f"{key} is given {count} times: the last one holds, {given[key]!r}")


def _is_good(name: str, value: str, diagnosis: Diagnosis) -> bool:
    """Return whether the value is allowed. All invalid values are reported, not only the first."""
    key = BROKER_KEYS.get(name)
    if key is None:
        return True
    try:
        key.parse(value)
    except ConfigError as error:
        diagnosis.wrong(str(error), f"correct {name}, or take it out")
        return False
    return True


def _read(good: Mapping[str, str], diagnosis: Diagnosis) -> Configuration | None:
    logger = logging.getLogger("barnabas.server.configs.configuration")
    level = logger.level
    # This check reports the same problems in its own words.
    logger.setLevel(logging.CRITICAL)
    try:
        return read_configuration(good)
    except ConfigError as error:
        diagnosis.wrong(str(error), f"correct {error.key}")
        return None
    finally:
        logger.setLevel(level)


def _examine_unknown(parsed: ParsedConfig, diagnosis: Diagnosis) -> None:
    of_listeners = listener_keys(parsed)
    names = [key.name for key in BROKER_KEYS]
    synonyms = {key.name: key.synonyms[0].name for key in TOPIC_CONFIGS if key.synonyms}
    useless = [name for name in parsed.unknown if name not in of_listeners]
    for name in useless:
        if name in synonyms:
            remedy = f"for all topics write {synonyms[name]}"
            diagnosis.wrong(f"{name} is a key of topics, not of brokers", remedy)
            continue
        close = difflib.get_close_matches(name, names, n=1, cutoff=_CLOSE)
        if close:
            diagnosis.wrong(f"{name} is not known", f"did you mean {close[0]}?")
        elif name.startswith(_ZOOKEEPER):
            diagnosis.note(f"{name} has no effect: there is no ZooKeeper", "take it out")
        else:
            diagnosis.note(f"{name} has no effect here", "take it out, or look for another key")
    if not useless:
        diagnosis.ok(f"{len(parsed.given)} keys, all known and with allowed values")


def _voters(configuration: Configuration) -> int:
    return max(1, len(configuration.parsed.strings("controller.quorum.voters")))


def _examine_listeners(configuration: Configuration, diagnosis: Diagnosis) -> None:
    for endpoint in configuration.endpoints:
        if endpoint.port == 0:
            diagnosis.ok(f"{endpoint} takes any free port")
            continue
        family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
        with socket.socket(family) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((endpoint.host, endpoint.port))
            except OSError as error:
                _report_unbound(str(endpoint), error, diagnosis)
            else:
                diagnosis.ok(f"{endpoint} is free to listen on")


def _report_unbound(endpoint: str, error: OSError, diagnosis: Diagnosis) -> None:
    remedies = {
        errno.EADDRINUSE: "another program listens there: stop it, or take another port",
        errno.EADDRNOTAVAIL: "this machine does not have that address: name one that it has",
        errno.EACCES: "ports below 1024 are the administrator's: take a higher one",
    }
    remedy = remedies.get(error.errno or 0, "name an address of this machine")
    diagnosis.wrong(f"{endpoint} cannot be listened on: {error.strerror}", remedy)


def _examine_directories(configuration: Configuration, diagnosis: Diagnosis) -> None:
    parsed = configuration.parsed
    key = "log.dirs" if parsed["log.dirs"] is not None else "log.dir"
    clusters: dict[str, str] = {}
    for path in parsed.strings(key):
        meta = examine_directory(
            path,
            diagnosis,
            node_id=configuration.node_id,
            cluster_id=configuration.cluster.cluster_id,
        )
        if meta is not None:
            clusters.setdefault(meta.cluster_id, path)
    if len(clusters) > 1:
        words = ", ".join(f"{path} to {cluster}" for cluster, path in clusters.items())
        remedy = "take out the directories of the other cluster"
        diagnosis.wrong(f"the directories belong to several clusters: {words}", remedy)
