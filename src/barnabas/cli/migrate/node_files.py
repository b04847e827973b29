"""Check of a node's files before it moves: server.properties, and its data directories.

Each finding has one of three verdicts: it carries over (`ok`), it carries over with a difference
(`note`), or the node cannot move like this (`wrong`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.printable import counted, some
from barnabas.cli.log.segment_files import METADATA_LOG, is_locked, needs_recovery
from barnabas.cli.log.verify_directory import is_of_topic, metadata_records
from barnabas.cli.migrate.remote_tiers import (
    TIER_SWITCHES,
    TIERED_TOPIC_KEY,
    check_remote_tier,
    report_tiered_topics,
    tier_carries_over,
)
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.records.topics import ConfigRecord
from barnabas.raft.log.metadata_check import MetadataDamagedError, check_metadata
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.process import environment
from barnabas.server.configs.config import log_directories
from barnabas.server.configs.configuration import (
    BROKER_KEYS,
    IGNORED_KEYS,
    RENAMED_KEYS,
    is_listener_key,
    read_configuration,
)
from barnabas.server.configs.policies import check_policies
from barnabas.server.configs.tls_config import check_classes
from barnabas.server.startup.features import UnsupportedFeaturesError, check_features
from barnabas.settings.config_providers import resolve_readable
from barnabas.settings.key import ConfigError, without_listener
from barnabas.settings.properties import PropertiesError, parse_properties
from barnabas.storage.errors import InconsistentDirectoryError
from barnabas.storage.files.log_directory import LOCK_FILE
from barnabas.storage.files.metadata_files import MetaProperties
from barnabas.storage.remote_keys import STORE_PREFIX, STORE_PREFIX_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.settings.config_providers import Readable

_CONFLUENT = "confluent."
_ROLES = "process.roles"
_LISTENER_KEYS = ("listeners", "controller.listener.names")
_ZOOKEEPER = "zookeeper."
_DIRECTORY_KEYS = ("log.dir", "log.dirs")
_AS_USER = "run the check as the user of the broker"
_REPORTERS = ("metric.reporters", "kafka.metrics.reporters")
_JMX_REPORTER = "org.apache.kafka.common.metrics.JmxReporter"
# What takes the place of a plug-in.
_REPLACEMENTS = {
    "authorizer.class.name": "write the rules as access control entries of Kafka's own authorizer, "
    "and check that they refuse what the plug-in refuses: docs/security.md",
    "principal.builder.class": "let ssl.principal.mapping.rules make the names of principals, or "
    "write the entries for the names that Kafka's own builder makes",
    "create.topic.policy.class.name": "write the policy in Python: docs/security.md",
    "alter.config.policy.class.name": "write the policy in Python: docs/security.md",
    "sasl.server.callback.handler.class": "let clients log in by SCRAM-SHA-512, OAUTHBEARER or "
    "certificates: docs/security.md",
    "client.quota.callback.class": "set the quotas of users and clients: `barnabas quotas set`",
    "sasl.enabled.mechanisms": "give all clients one of these mechanisms while Apache Kafka still "
    "runs, then enable no other one: docs/security.md",
    "sasl.jaas.config": "if the text is in a JAAS file (java.security.auth.login.config), move it "
    "to this key; clients of login modules that are not Kafka's need another mechanism, such as "
    "SCRAM-SHA-512: docs/security.md",
}
_PROVIDER_REMEDY = (
    "Java classes are not loaded: write the secrets to files that only the broker's user can read, "
    "or to its environment, and name one of these classes"
)
_TO_KRAFT = "move the cluster to KRaft first, with the tools of Apache Kafka 3.9"
_LOGIN_CLASS = "sasl.server.callback.handler.class"
_KAFKA_PACKAGE = "org.apache.kafka."
# The default of log.dirs in Apache Kafka.
_KAFKA_DIRECTORY = "/tmp/kafka-logs"  # noqa: S108 - named, never written
# One wrong value can hide the next one, so the check is repeated without it.
_REPEATS_MAX = 20
# A line names so many keys, and the number of the others.
_NAMES_MAX = 20


def check_properties(path: str, found: Diagnosis) -> None:
    """Check a server.properties of Apache Kafka, and the data directories that it names."""
    try:
        text = parse_properties(RealDisk().read(path).decode("latin-1"))
    except PropertiesError as error:
        found.wrong(f"{path}: {error}", "correct the file; Kafka refuses it too")
        return
    except OSError as error:
        found.unexamined(f"{path}: {error.strerror}", _AS_USER)
        return
    readable = resolve_readable(text, RealDisk(), environment())
    given = {RENAMED_KEYS.get(name, name): value for name, value in readable.properties.items()}
    if _uses_zookeeper(given, found):
        return
    if _ROLES not in text:
        found.wrong(
            f"{path}: {_ROLES} is not given, so it is not the server.properties of a node with "
            "KRaft",
            "give the file with which the node starts",
        )
        return
    allowed = check_keys(given, found, path, is_whole=True)
    if readable.refused_providers or readable.missing:
        _report_unresolved(readable, path, found)
    else:
        _check_together(allowed, found)
    node_id = given.get("node.id", "")
    if not any(name in text for name in _DIRECTORY_KEYS):
        found.wrong(
            f"{path}: log.dirs is not given: Apache Kafka then uses {_KAFKA_DIRECTORY}, and "
            "Barnabas a directory of its own",
            f"add log.dirs={_KAFKA_DIRECTORY}",
        )
    elif all(name in given for name in _DIRECTORY_KEYS if name in text):
        for directory in log_directories(BROKER_KEYS.parse(allowed)):
            number = int(node_id) if node_id.isdigit() else None
            check_directory(directory, found, number, carries_over=tier_carries_over(given))


def _report_unresolved(readable: Readable, path: str, found: Diagnosis) -> None:
    """Report variables without a value. Values of other keys cannot be checked together then."""
    for error in readable.refused_providers:
        found.wrong(f"{path}: {error}", _PROVIDER_REMEDY)
    if readable.keys_of_refused:
        found.unexamined(
            f"{path}: {', '.join(readable.keys_of_refused)}: not known without their provider",
            "let one of these three classes provide them, and run the check again",
        )
    for error in readable.missing:
        found.unexamined(
            f"{path}: {error}",
            "run the check on the node, as the user of the broker and with its environment",
        )
    found.unexamined(f"{path}: whether all values fit together, because some are not known")


def _uses_zookeeper(given: Mapping[str, str], found: Diagnosis) -> bool:
    """Report a node of a cluster with ZooKeeper. Return whether it is one."""
    keys = sorted(name for name in given if name.startswith(_ZOOKEEPER))
    if _ROLES not in given and keys:
        found.wrong(f"this is a node of a cluster with ZooKeeper: {keys[0]} is given", _TO_KRAFT)
        return True
    if given.get("zookeeper.metadata.migration.enable", "").strip().lower() == "true":
        found.wrong(
            "the move from ZooKeeper is not finished: zookeeper.metadata.migration.enable=true",
            "finish it with Apache Kafka, then remove the keys that begin with zookeeper.",
        )
    elif keys:
        found.note(
            f"{', '.join(keys)}: no effect, as in Apache Kafka 4", "remove the keys at leisure"
        )
    return False


def check_keys(
    given: Mapping[str, str], found: Diagnosis, source: str, *, is_whole: bool
) -> dict[str, str]:
    """Report which keys carry over.

    Args:
        given: The values that are set explicitly, by the current name of their key.
        found: Gets the findings.
        source: Where the values are set.
        is_whole: Whether these are all values. Brokers do not tell those of their classes.

    Returns:
        The values that are not refused.
    """
    refusals = {name: _refusal(name, value) for name, value in given.items()}
    for name, refusal in refusals.items():
        if refusal is not None:
            found.wrong(f"{source}: {refusal}", _remedy(name, f"correct {name}, or remove it"))
    allowed = {name: value for name, value in given.items() if refusals[name] is None}
    listeners = BROKER_KEYS.parse({key: allowed[key] for key in _LISTENER_KEYS if key in allowed})
    if not check_remote_tier(allowed, found, is_whole=is_whole):
        allowed = {name: value for name, value in allowed.items() if name not in TIER_SWITCHES}
    known = [name for name in allowed if name in BROKER_KEYS or is_listener_key(listeners, name)]
    if known:
        found.ok(f"{source}: {counted(len(known), 'key')} with the same meaning")
    _report_without_effect(
        {name: value for name, value in allowed.items() if name not in known}, found, source
    )
    return allowed


def _report_without_effect(given: Mapping[str, str], found: Diagnosis, source: str) -> None:
    """Report keys that a start ignores, by the reason."""
    by_reason: dict[str, list[str]] = {}
    unknown, of_confluent = [], []
    for name, value in given.items():
        if name.startswith(_ZOOKEEPER):
            continue
        if name in _REPORTERS:
            _check_reporters(name, value, found)
        elif name.startswith(_CONFLUENT):
            of_confluent.append(name)
        elif name.startswith(given.get(STORE_PREFIX) or STORE_PREFIX_DEFAULT):
            by_reason.setdefault(IGNORED_KEYS[STORE_PREFIX], []).append(name)
        elif (base := without_listener(name)) in IGNORED_KEYS:
            by_reason.setdefault(IGNORED_KEYS[base], []).append(name)
        else:
            unknown.append(name)
    for reason, names in by_reason.items():
        found.note(
            f"{source}: {some(sorted(names), _NAMES_MAX)}: no effect: {reason}",
            "they may stay in the file",
        )
    if of_confluent:
        found.note(
            f"{source}: {counted(len(of_confluent), 'key')} of Confluent Server, which begin with "
            f"{_CONFLUENT}: no effect",
            "features that Apache Kafka does not have end with the move: docs/migration.md",
        )
    if unknown:
        found.note(
            f"{source}: {some(sorted(unknown), _NAMES_MAX)}: no effect: brokers of Kafka 4.4 and "
            "of Barnabas have no such key",
            "if a plug-in of Kafka reads one of them, look for what replaces the plug-in",
        )


def _remedy(name: str, otherwise: str) -> str:
    """Return what takes the place of the class that a key names."""
    return next((text for key, text in _REPLACEMENTS.items() if name.endswith(key)), otherwise)


def _refusal(name: str, value: str) -> ConfigError | None:
    """Return why a start would refuse the value of one key; None if it is allowed."""
    given = {name: value}
    try:
        check_policies(BROKER_KEYS.parse(given), given)
        check_classes(given)
        if name.endswith(_LOGIN_CLASS) and not value.strip().startswith(_KAFKA_PACKAGE):
            raise ConfigError(name, value, "only Kafka's own classes: this broker loads no others")
    except ConfigError as error:
        return error
    return None


def _check_reporters(name: str, value: str, found: Diagnosis) -> None:
    classes = [each.strip() for each in value.split(",")]
    others = [each for each in classes if each not in ("", _JMX_REPORTER)]
    if others:
        found.note(
            f"{name}: {', '.join(others)}: no effect: Java classes are not loaded",
            "let Prometheus read metrics.listener; docs/metrics.md has Kafka's names",
        )


def _check_together(given: Mapping[str, str], found: Diagnosis) -> None:
    """Report values that a start refuses because of other values."""
    remaining = dict(given)
    for _ in range(_REPEATS_MAX):
        try:
            # `check_keys` reports unknown keys.
            read_configuration(remaining, warns=False)
        except ConfigError as error:
            # A start would refuse the key without its value too: that is not another finding.
            if error.key in given and error.key not in remaining:
                return
            otherwise = f"correct {error.key}; docs/security.md has examples"
            found.wrong(str(error), _remedy(error.key, otherwise))
            if error.key not in remaining:
                return
            del remaining[error.key]
        else:
            return


def check_directory(
    path: str, found: Diagnosis, node_id: int | None = None, *, carries_over: bool = False
) -> None:
    """Check a data directory of Apache Kafka. Nothing in it is changed.

    Args:
        path: The directory.
        found: Gets the findings.
        node_id: The node that the directory must belong to, if it is known.
        carries_over: Whether Barnabas will read the remote segments of tiered topics.
    """
    disk = RealDisk()
    if not disk.is_directory(path):
        found.unexamined(f"{path} is not on this machine", "run the check on the node itself")
        return
    try:
        meta = MetaProperties.read(disk, path)
        check_features(disk, path)
    except InconsistentDirectoryError as error:
        found.wrong(str(error), _TO_KRAFT if "version '0'" in str(error) else "see docs/interop.md")
        return
    except UnsupportedFeaturesError as error:
        found.wrong(str(error), "run that command while Apache Kafka still runs")
        return
    except OSError as error:
        found.unexamined(f"{path}: {error.strerror}", _AS_USER)
        return
    if meta is None:
        found.note(f"{path} is not formatted", "the first start formats it")
        return
    if node_id is not None and meta.node_id != node_id:
        found.wrong(
            f"{path} belongs to node {meta.node_id}, but the file has node.id={node_id}",
            "use the server.properties of that node",
        )
        return
    is_running = is_locked(f"{path}/{LOCK_FILE}")
    # A running broker changes the files of the metadata log.
    if not is_running and not _has_intact_metadata(path, found):
        return
    _check_records(path, found, carries_over=carries_over)
    if is_running:
        state = "in use: stop the broker before the move"
    elif needs_recovery(path):
        state = "not closed cleanly: the first start recovers its logs"
    else:
        state = "closed cleanly"
    found.ok(f"{path}: node {meta.node_id} of cluster {meta.cluster_id}, {state}")


def _has_intact_metadata(path: str, found: Diagnosis) -> bool:
    """Report damage of the metadata log for which a start refuses the directory."""
    try:
        check_metadata(RealDisk(), f"{path}/{METADATA_LOG}", None)
    except MetadataDamagedError as error:
        found.wrong(str(error), "do so before the move, and start Apache Kafka on it once")
        return False
    except OSError as error:
        found.unexamined(f"{path}/{METADATA_LOG}: {error.strerror}", _AS_USER)
        return False
    return True


def _check_records(path: str, found: Diagnosis, *, carries_over: bool) -> None:
    """Report metadata records of a newer version, and topics that are or were tiered."""
    unknown: set[str] = set()
    tiered: set[str] = set()
    for record in metadata_records(path):
        if isinstance(record, ProtocolError):
            unknown.add(str(record))
        elif (
            isinstance(record, ConfigRecord)
            and is_of_topic(record, TIERED_TOPIC_KEY)
            and record.value == "true"
        ):
            tiered.add(record.resource_name)
    if unknown:
        found.wrong(
            f"{path} has metadata records that this version does not know: {some(sorted(unknown))}",
            "a newer Apache Kafka wrote them: move the node with a newer Barnabas",
        )
    if tiered:
        report_tiered_topics(sorted(tiered), found, carries_over=carries_over)
