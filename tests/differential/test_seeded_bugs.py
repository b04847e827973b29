"""Bugs in our responses, one at a time, are detected by the comparison.

A few cases are played once and their responses kept. Each bug is then applied to the responses of
its API, and the comparison with Kafka's response must fail. So no rule hides too much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode, ProtocolError
from differential.all_cases import CASES
from differential.response import ReencodingError, differences, flatten, read_response
from differential.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.response import Flat
    from differential.scene import Pair
    from differential.side import Side

pytestmark = pytest.mark.conformance

# These cases are played in the newest version that both brokers serve.
PLAYED = (
    "produce: matrix-of-produce",
    "fetch: matrix-of-fetch",
    "list_offsets: matrix-of-list-offsets",
    "metadata: matrix-of-metadata",
    "create_topics: matrix-of-create-topics",
    "describe_configs: matrix-of-describe-a-topics-configs",
    "offset_commit: matrix-of-commit-of-a-member",
    "offset_fetch: matrix-of-offset-fetch",
    "join_group: matrix-of-join-group",
    "sync_group: matrix-of-sync-group",
    "describe_groups: matrix-of-describe-groups",
    "delete_records: matrix-of-delete-records",
    "offset_for_leader_epoch: matrix-of-offset-for-leader-epoch",
    "describe_log_dirs: matrix-of-describe-log-dirs",
    "api_versions: matrix-of-api-versions",
    "find_coordinator: matrix-of-find-coordinator",
    "describe_configs: described-loggers",
    "incremental_alter_configs: levels-of-loggers",
    "create_topics: lifecycle-of-a-topic",
    "delete_topics: a-stale-id-deletes-nothing",
)


class Kept(NamedTuple):
    """A response of Barnabas, with Kafka's response to the same request."""

    api: ApiKey
    version: int
    kafka: Flat
    frame: bytes
    # The side of Barnabas with the names of its generated ids in the case.
    side: Side


# A bug changes a response in place, and returns whether it was applicable.
BUGS: dict[str, tuple[ApiKey, Callable[[Any], bool]]] = {}


def bug(api: ApiKey) -> Callable[[Callable[[Any], bool]], Callable[[Any], bool]]:
    def register(change: Callable[[Any], bool]) -> Callable[[Any], bool]:
        BUGS[change.__name__.replace("_", " ")] = api, change
        return change

    return register


@bug(ApiKey.PRODUCE)
def a_base_offset_one_too_high(response: Any) -> bool:
    return added(partitions(response.responses, "partition_responses"), "base_offset")


@bug(ApiKey.PRODUCE)
def a_missing_log_start_offset(response: Any) -> bool:
    found = partitions(response.responses, "partition_responses")
    return put([each for each in found if each.log_start_offset == 0], "log_start_offset", -1)


@bug(ApiKey.PRODUCE)
def a_missing_error(response: Any) -> bool:
    return forgiven(partitions(response.responses, "partition_responses"))


@bug(ApiKey.PRODUCE)
def a_missing_partition(response: Any) -> bool:
    return dropped([topic.partition_responses for topic in response.responses])


@bug(ApiKey.PRODUCE)
def an_error_without_a_message(response: Any) -> bool:
    found = partitions(response.responses, "partition_responses")
    return put([each for each in found if each.error_message], "error_message", None)


@bug(ApiKey.FETCH)
def a_record_set_that_ends_too_soon(response: Any) -> bool:
    found = [each for each in partitions(response.responses) if each.records]
    return put(found, "records", b"") if found else False


@bug(ApiKey.FETCH)
def a_byte_of_a_record_changed(response: Any) -> bool:
    for each in partitions(response.responses):
        if each.records:
            data = bytearray(each.records)
            data[-1] ^= 1
            each.records = bytes(data)
            return True
    return False


@bug(ApiKey.FETCH)
def a_high_watermark_one_too_low(response: Any) -> bool:
    return added(partitions(response.responses), "high_watermark", -1)


@bug(ApiKey.FETCH)
def aborted_transactions_empty_for_null(response: Any) -> bool:
    found = [each for each in partitions(response.responses) if each.aborted_transactions is None]
    return put(found, "aborted_transactions", [])


@bug(ApiKey.FETCH)
def an_unknown_epoch_for_a_fenced_one(response: Any) -> bool:
    return confused(partitions(response.responses), "UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH")


@bug(ApiKey.LIST_OFFSETS)
def an_offset_one_too_low(response: Any) -> bool:
    return added(partitions(response.topics), "offset", -1)


@bug(ApiKey.LIST_OFFSETS)
def a_wrong_leader_epoch(response: Any) -> bool:
    return added(partitions(response.topics), "leader_epoch")


@bug(ApiKey.LIST_OFFSETS)
def a_timestamp_0_for_no_timestamp(response: Any) -> bool:
    found = [each for each in partitions(response.topics) if each.timestamp == -1]
    return put(found, "timestamp", 0)


@bug(ApiKey.METADATA)
def a_topic_that_is_missing(response: Any) -> bool:
    return dropped([response.topics])


@bug(ApiKey.METADATA)
def a_replica_that_is_not_in_sync(response: Any) -> bool:
    return put([each for each in partitions(response.topics) if each.isr_nodes], "isr_nodes", [])


@bug(ApiKey.METADATA)
def partitions_in_another_order(response: Any) -> bool:
    for topic in response.topics:
        if len(topic.partitions) > 1:
            topic.partitions.reverse()
            return True
    return False


@bug(ApiKey.METADATA)
def a_wrong_controller(response: Any) -> bool:
    return added([response], "controller_id")


@bug(ApiKey.METADATA)
def another_brokers_port(response: Any) -> bool:
    return added(response.brokers, "port")


@bug(ApiKey.METADATA)
def the_id_of_another_topic(response: Any) -> bool:
    found = [each for each in response.topics if each.topic_id != bytes(16)]
    return put(found, "topic_id", b"\5" * 16)


@bug(ApiKey.CREATE_TOPICS)
def a_wrong_default_replication_factor(response: Any) -> bool:
    return added([each for each in response.topics if not each.error_code], "replication_factor")


@bug(ApiKey.CREATE_TOPICS)
def a_throttle_time_without_throttling(response: Any) -> bool:
    return added([response], "throttle_time_ms", 100)


@bug(ApiKey.CREATE_TOPICS)
def a_missing_config(response: Any) -> bool:
    return dropped([each.configs for each in response.topics if each.configs])


@bug(ApiKey.DESCRIBE_CONFIGS)
def a_default_for_a_topics_own_value(response: Any) -> bool:
    found = [config for each in response.results for config in each.configs]
    return added(found, "config_source")


@bug(ApiKey.DESCRIBE_CONFIGS)
def a_synonym_that_is_missing(response: Any) -> bool:
    found = [config.synonyms for each in response.results for config in each.configs]
    return dropped([each for each in found if each])


@bug(ApiKey.OFFSET_COMMIT)
def a_fenced_member_that_commits(response: Any) -> bool:
    return forgiven(partitions(response.topics))


@bug(ApiKey.OFFSET_FETCH)
def missing_offset_metadata(response: Any) -> bool:
    found = [each for group in response.groups for each in partitions(group.topics)]
    return put([each for each in found if each.metadata], "metadata", "")


@bug(ApiKey.OFFSET_FETCH)
def null_for_empty_offset_metadata(response: Any) -> bool:
    found = [each for group in response.groups for each in partitions(group.topics)]
    return put([each for each in found if each.metadata == ""], "metadata", None)


@bug(ApiKey.JOIN_GROUP)
def a_generation_that_was_skipped(response: Any) -> bool:
    return added([response], "generation_id") if not response.error_code else False


@bug(ApiKey.JOIN_GROUP)
def a_missing_member_id(response: Any) -> bool:
    return put([response] if response.member_id else [], "member_id", "")


@bug(ApiKey.SYNC_GROUP)
def an_assignment_that_is_lost(response: Any) -> bool:
    return put([response] if response.assignment else [], "assignment", b"")


@bug(ApiKey.DESCRIBE_GROUPS)
def a_state_of_another_name(response: Any) -> bool:
    return put(response.groups, "group_state", "stable")


@bug(ApiKey.DELETE_RECORDS)
def a_low_watermark_that_is_the_end(response: Any) -> bool:
    return added(partitions(response.topics), "low_watermark")


@bug(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def an_end_offset_of_another_epoch(response: Any) -> bool:
    return added(partitions(response.topics), "end_offset")


@bug(ApiKey.DESCRIBE_LOG_DIRS)
def a_size_in_blocks(response: Any) -> bool:
    found = [each for result in response.results for each in partitions(result.topics)]
    return added([each for each in found if each.partition_size], "partition_size", 7)


@bug(ApiKey.API_VERSIONS)
def a_version_too_many(response: Any) -> bool:
    return added(response.api_keys, "max_version")


@bug(ApiKey.FIND_COORDINATOR)
def a_coordinator_without_a_host(response: Any) -> bool:
    return put([each for each in response.coordinators if each.host], "host", "")


@bug(ApiKey.DESCRIBE_CONFIGS)
def a_value_that_is_not_normalized(response: Any) -> bool:
    found = [config for each in response.results for config in each.configs if config.value]
    return put(found, "value", f" {found[0].value} ") if found else False


@bug(ApiKey.DESCRIBE_CONFIGS)
def a_synonym_of_another_value(response: Any) -> bool:
    found = [config.synonyms for each in response.results for config in each.configs]
    return put([each for synonyms in found for each in synonyms], "value", "7")


@bug(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def an_accepted_invalid_level(response: Any) -> bool:
    return forgiven(response.responses)


@bug(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def a_bad_config_for_a_bad_request(response: Any) -> bool:
    return confused(response.responses, "INVALID_CONFIG", "INVALID_REQUEST")


@bug(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def a_response_for_another_resource(response: Any) -> bool:
    return put(response.responses, "resource_name", "another")


@bug(ApiKey.DELETE_TOPICS)
def a_stale_id_that_deletes(response: Any) -> bool:
    return forgiven(response.responses)


@bug(ApiKey.PRODUCE)
def an_unknown_id_for_an_unknown_topic(response: Any) -> bool:
    found = partitions(response.responses, "partition_responses")
    return confused(found, "UNKNOWN_TOPIC_ID", "UNKNOWN_TOPIC_OR_PARTITION")


@bug(ApiKey.FETCH)
def records_of_a_deleted_topic(response: Any) -> bool:
    found = [each for each in partitions(response.responses) if each.error_code]
    return put(found, "records", b"left over")


def forgiven(responses: Any) -> bool:
    """Remove the first error."""
    return put([each for each in responses if each.error_code], "error_code", 0)


def partitions(topics: Any, name: str = "partitions") -> list[Any]:
    return [each for topic in topics or [] for each in getattr(topic, name)]


def put(found: list[Any], name: str, value: object) -> bool:
    for each in found[:1]:
        setattr(each, name, value)
    return bool(found)


def added(found: list[Any], name: str, more: int = 1) -> bool:
    return put(found, name, getattr(found[0], name) + more) if found else False


def dropped(lists: list[list[Any]]) -> bool:
    for items in lists:
        if items:
            items.pop()
            return True
    return False


def confused(found: list[Any], one: str, other: str) -> bool:
    codes = {ErrorCode[one]: ErrorCode[other], ErrorCode[other]: ErrorCode[one]}
    for each in found:
        if each.error_code in codes:
            each.error_code = codes[each.error_code]
            return True
    return False


def keeper(found: list[Kept], side: Side) -> Callable[[ApiKey, int, Flat, bytes], None]:
    def keep(api: ApiKey, version: int, kafka: Flat, frame: bytes) -> None:
        found.append(Kept(api, version, kafka, frame, side.snapshot()))

    return keep


@pytest.fixture(scope="module")
def kept(pair: Pair) -> list[Kept]:
    """Return the responses of the cases in `PLAYED`."""
    found: list[Kept] = []
    for case in CASES:
        if str(case) in PLAYED:
            scene = Scene(pair, case.api, f"seeded-{case.name}", pair.versions(case.api)[-1])
            scene.after_comparing = keeper(found, pair.barnabas)
            case.play(scene)
    return found


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_in_our_responses_is_detected(name: str, kept: list[Any]) -> None:
    api, change = BUGS[name]
    seen = 0
    for each in kept:
        if each.api != api:
            continue
        response = read_response(each.api, each.version, each.frame)
        before = differences(each.kafka, flatten(response, each.version, each.side))
        if change(response):
            after = differences(each.kafka, flatten(response, each.version, each.side))
            # A known difference hides changes within an item that Kafka's response lacks.
            assert after != before or before, (each.version, response)
            seen += after != before
    assert seen, "no response showed the bug"


# Bugs in the encoding of a response, with which decoding fails or gives other values.
ENCODING_BUGS: dict[str, Callable[[bytes], bytes]] = {
    "a byte too many": lambda frame: frame + b"\0",
    "no tagged fields at the end": lambda frame: frame[:-1],
    "a tagged field that is not counted": lambda frame: frame[:-1] + b"\0\1",
    "a list with a wrong length": lambda frame: frame[:9] + bytes([frame[9] + 1]) + frame[10:],
}


@pytest.mark.parametrize("name", ENCODING_BUGS)
def test_a_bug_in_the_encoding_of_a_response_is_detected(name: str, kept: list[Kept]) -> None:
    each = next(each for each in kept if each.api == ApiKey.LIST_OFFSETS)
    with pytest.raises((ReencodingError, ProtocolError)):
        read_response(each.api, each.version, ENCODING_BUGS[name](each.frame))


def test_there_are_at_least_twenty_bugs() -> None:
    assert len(BUGS) + len(ENCODING_BUGS) > 20
