"""What becomes of the remote segments of Apache Kafka when its nodes move (KIP-405).

Kafka keeps them by a class. Barnabas reads what LocalTieredStorage has stored, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.printable import some
from barnabas.settings.key import ConfigError
from barnabas.storage.remote.config import KAFKA_LAYOUT, parse_storage_url
from barnabas.storage.remote_keys import (
    STORAGE,
    STORE_CLASS,
    STORE_PREFIX,
    STORE_PREFIX_DEFAULT,
    SYSTEM_ENABLE,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.cli.doctor.diagnosis import Diagnosis

TIERED_TOPIC_KEY = "remote.storage.enable"
_CONFLUENT_TIER_KEYS = ("confluent.tier.feature", "confluent.tier.enable")
TIER_SWITCHES = (SYSTEM_ENABLE, *_CONFLUENT_TIER_KEYS)
_READABLE_CLASS = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
_END_OF_CONFLUENT_TIERS = (
    "copy the cluster instead of moving its nodes, for example with MirrorMaker 2; "
    "docs/migration.md tells more"
)
_END_OF_TIER = (
    "set remote.log.copy.disable=true for its topics and wait until their tier has expired, or "
    "mirror them to a new cluster by a link; then set "
    f"{TIERED_TOPIC_KEY}=false and remote.log.delete.on.disable=true with Apache Kafka. Remove "
    f"the key, or add {STORAGE} for a new tier: docs/migration.md"
)
_DELETES_ON_CLOSE = "delete.on.close"


def check_remote_tier(given: Mapping[str, str], found: Diagnosis, *, is_whole: bool) -> bool:
    """Report what becomes of the remote segments of a node.

    Args:
        given: The values that are set explicitly.
        found: Gets the findings.
        is_whole: Whether these are all values. Brokers do not tell those of their classes.

    Returns:
        Whether a start accepts the keys of the tier.
    """
    enabled = [name for name in TIER_SWITCHES if given.get(name, "").strip().lower() == "true"]
    for name in enabled:
        if name != SYSTEM_ENABLE:
            found.wrong(
                f"{name}=true: Barnabas does not read tiered storage of Confluent Server",
                _END_OF_CONFLUENT_TIERS,
            )
        elif is_local_tier(given):
            _check_local_tier(given, found, is_whole=is_whole)
        elif STORAGE not in given:
            store = given.get(STORE_CLASS) or "a Java class"
            found.wrong(
                f"{name}=true, but {STORAGE} is not given: Barnabas does not read the segments that"
                f" {store} has stored",
                _END_OF_TIER,
            )
    return not enabled or STORAGE in given


def is_local_tier(given: Mapping[str, str]) -> bool:
    """Return whether the values name the class whose segments Barnabas can read."""
    is_enabled = given.get(SYSTEM_ENABLE, "").strip().lower() == "true"
    return is_enabled and given.get(STORE_CLASS, "").strip() == _READABLE_CLASS


def tier_carries_over(given: Mapping[str, str]) -> bool:
    """Return whether Barnabas will read the remote segments with the values of a node."""
    directory = given.get(f"{_prefix(given)}dir", "").strip()
    if not (is_local_tier(given) and directory):
        return False
    try:
        store = parse_storage_url(given.get(STORAGE, ""))
        own = parse_storage_url(_url(directory))
    except ConfigError:
        return False
    return store == own


def report_tiered_topics(names: list[str], found: Diagnosis, *, carries_over: bool) -> None:
    """Report topics whose older records are in tiered storage.

    Args:
        names: The topics, at least one.
        found: Gets the finding.
        carries_over: Whether Barnabas reads their remote segments, or will when it is configured.
    """
    what = f"{TIERED_TOPIC_KEY} is or was true for {some(names)}"
    if carries_over:
        found.ok(f"{what}: their remote segments carry over")
        return
    found.wrong(
        f"{what}: their remote segments would be missing",
        "consume or copy what is only there, then set it to false with Apache Kafka; a new remote "
        "tier is possible after the move: docs/migration.md",
    )


def _prefix(given: Mapping[str, str]) -> str:
    return given.get(STORE_PREFIX) or STORE_PREFIX_DEFAULT


def _url(directory: str) -> str:
    return f"file://{directory}?layout={KAFKA_LAYOUT}"


def _check_local_tier(given: Mapping[str, str], found: Diagnosis, *, is_whole: bool) -> None:
    prefix = _prefix(given)
    directory = given.get(f"{prefix}dir", "").strip()
    if not is_whole:
        found.note(
            f"the remote segments of LocalTieredStorage carry over with {STORAGE}={_url('/DIR')}",
            f"add this key to each server.properties, with the directory of {prefix}dir, and run "
            "the check with the file",
        )
        return
    if given.get(prefix + _DELETES_ON_CLOSE, "").strip().lower() == "true":
        found.wrong(
            f"{prefix}{_DELETES_ON_CLOSE}=true: Apache Kafka deletes the remote segments when it "
            "stops",
            "set it to false, and end Apache Kafka by a kill this once: its stop deletes them",
        )
    if not directory:
        found.wrong(
            f"{prefix}dir is not given, so LocalTieredStorage uses a temporary directory",
            "give a directory that lasts, and copy the remote segments to it",
        )
    elif tier_carries_over(given):
        found.ok(f"{STORAGE} is the store of LocalTieredStorage: the remote segments carry over")
    else:
        found.wrong(
            f"the remote segments are in {directory}, where LocalTieredStorage has stored them, but"
            f" {STORAGE} does not name this store",
            f"add {STORAGE}={_url(directory)}; Apache Kafka ignores the key",
        )
