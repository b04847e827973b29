"""Bugs in our responses, one at a time, are detected by the comparison.

A few cases are played once and their responses kept. Each bug is then applied to each response that
it fits, and the comparison with Kafka's response must fail: no rule replaces too much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.protocol_error import ProtocolError
from differential.all_cases import CASES
from differential.answer import ReencodingError, differences, flatten, read_answer
from differential.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.answer import Flat
    from differential.scene import Pair
    from differential.side import Side

pytestmark = pytest.mark.conformance

# Played in the newest version that both serve.
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
    "create_topics: a-topic-s-life",
    "delete_topics: a-stale-id-deletes-nothing",
)


class Kept(NamedTuple):
    """One answer of ours, with Kafka's to the same request."""

    api: ApiKey
    version: int
    kafka: Flat
    frame: bytes
    # With the names that the case had for what our side drew.
    side: Side


# A bug changes an answer in place, and says whether it fitted.
BUGS: dict[str, tuple[ApiKey, Callable[[Any], bool]]] = {}


def bug(api: ApiKey) -> Callable[[Callable[[Any], bool]], Callable[[Any], bool]]:
    def register(change: Callable[[Any], bool]) -> Callable[[Any], bool]:
        BUGS[change.__name__.replace("_", " ")] = api, change
        return change

    return register


@bug(ApiKey.PRODUCE)
def a_base_offset_one_too_high(answer: Any) -> bool:
    return added(partitions(answer.responses, "partition_responses"), "base_offset")


@bug(ApiKey.PRODUCE)
def a_log_start_offset_that_is_not_told(answer: Any) -> bool:
    found = partitions(answer.responses, "partition_responses")
    return put([each for each in found if each.log_start_offset == 0], "log_start_offset", -1)


@bug(ApiKey.PRODUCE)
def an_error_that_is_swallowed(answer: Any) -> bool:
    return forgiven(partitions(answer.responses, "partition_responses"))


@bug(ApiKey.PRODUCE)
def a_partition_that_is_not_answered(answer: Any) -> bool:
    return dropped([topic.partition_responses for topic in answer.responses])


@bug(ApiKey.PRODUCE)
def an_error_without_words(answer: Any) -> bool:
    found = partitions(answer.responses, "partition_responses")
    return put([each for each in found if each.error_message], "error_message", None)


@bug(ApiKey.FETCH)
def a_record_set_that_ends_too_soon(answer: Any) -> bool:
    found = [each for each in partitions(answer.responses) if each.records]
    return put(found, "records", b"") if found else False


@bug(ApiKey.FETCH)
def a_byte_of_a_record_changed(answer: Any) -> bool:
    for each in partitions(answer.responses):
        if each.records:
            data = bytearray(each.records)
            data[-1] ^= 1
            each.records = bytes(data)
            return True
    return False


@bug(ApiKey.FETCH)
def a_high_watermark_one_too_low(answer: Any) -> bool:
    return added(partitions(answer.responses), "high_watermark", -1)


@bug(ApiKey.FETCH)
def aborted_transactions_empty_for_null(answer: Any) -> bool:
    found = [each for each in partitions(answer.responses) if each.aborted_transactions is None]
    return put(found, "aborted_transactions", [])


@bug(ApiKey.FETCH)
def an_unknown_epoch_for_a_fenced_one(answer: Any) -> bool:
    return confused(partitions(answer.responses), "UNKNOWN_LEADER_EPOCH", "FENCED_LEADER_EPOCH")


@bug(ApiKey.LIST_OFFSETS)
def an_offset_one_too_low(answer: Any) -> bool:
    return added(partitions(answer.topics), "offset", -1)


@bug(ApiKey.LIST_OFFSETS)
def a_wrong_leader_epoch(answer: Any) -> bool:
    return added(partitions(answer.topics), "leader_epoch")


@bug(ApiKey.LIST_OFFSETS)
def a_timestamp_where_none_belongs(answer: Any) -> bool:
    found = [each for each in partitions(answer.topics) if each.timestamp == -1]
    return put(found, "timestamp", 0)


@bug(ApiKey.METADATA)
def a_topic_that_is_missing(answer: Any) -> bool:
    return dropped([answer.topics])


@bug(ApiKey.METADATA)
def a_replica_that_is_not_in_sync(answer: Any) -> bool:
    return put([each for each in partitions(answer.topics) if each.isr_nodes], "isr_nodes", [])


@bug(ApiKey.METADATA)
def partitions_in_another_order(answer: Any) -> bool:
    for topic in answer.topics:
        if len(topic.partitions) > 1:
            topic.partitions.reverse()
            return True
    return False


@bug(ApiKey.METADATA)
def a_wrong_controller(answer: Any) -> bool:
    return added([answer], "controller_id")


@bug(ApiKey.METADATA)
def another_brokers_port(answer: Any) -> bool:
    return added(answer.brokers, "port")


@bug(ApiKey.METADATA)
def the_id_of_another_topic(answer: Any) -> bool:
    found = [each for each in answer.topics if each.topic_id != bytes(16)]
    return put(found, "topic_id", b"\5" * 16)


@bug(ApiKey.CREATE_TOPICS)
def a_wrong_default_replication_factor(answer: Any) -> bool:
    return added([each for each in answer.topics if not each.error_code], "replication_factor")


@bug(ApiKey.CREATE_TOPICS)
def a_throttle_time_for_nothing(answer: Any) -> bool:
    return added([answer], "throttle_time_ms", 100)


@bug(ApiKey.CREATE_TOPICS)
def configs_that_are_not_told(answer: Any) -> bool:
    return dropped([each.configs for each in answer.topics if each.configs])


@bug(ApiKey.DESCRIBE_CONFIGS)
def a_default_for_a_topics_own_value(answer: Any) -> bool:
    found = [config for each in answer.results for config in each.configs]
    return added(found, "config_source")


@bug(ApiKey.DESCRIBE_CONFIGS)
def a_synonym_that_is_missing(answer: Any) -> bool:
    found = [config.synonyms for each in answer.results for config in each.configs]
    return dropped([each for each in found if each])


@bug(ApiKey.OFFSET_COMMIT)
def a_fenced_member_that_commits(answer: Any) -> bool:
    return forgiven(partitions(answer.topics))


@bug(ApiKey.OFFSET_FETCH)
def a_note_that_is_lost(answer: Any) -> bool:
    found = [each for group in answer.groups for each in partitions(group.topics)]
    return put([each for each in found if each.metadata], "metadata", "")


@bug(ApiKey.OFFSET_FETCH)
def null_for_an_empty_note(answer: Any) -> bool:
    found = [each for group in answer.groups for each in partitions(group.topics)]
    return put([each for each in found if each.metadata == ""], "metadata", None)


@bug(ApiKey.JOIN_GROUP)
def a_generation_that_was_skipped(answer: Any) -> bool:
    return added([answer], "generation_id") if not answer.error_code else False


@bug(ApiKey.JOIN_GROUP)
def a_member_that_is_given_no_id(answer: Any) -> bool:
    return put([answer] if answer.member_id else [], "member_id", "")


@bug(ApiKey.SYNC_GROUP)
def an_assignment_that_is_lost(answer: Any) -> bool:
    return put([answer] if answer.assignment else [], "assignment", b"")


@bug(ApiKey.DESCRIBE_GROUPS)
def a_state_of_another_name(answer: Any) -> bool:
    return put(answer.groups, "group_state", "stable")


@bug(ApiKey.DELETE_RECORDS)
def a_low_watermark_that_is_the_end(answer: Any) -> bool:
    return added(partitions(answer.topics), "low_watermark")


@bug(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def an_end_offset_of_another_epoch(answer: Any) -> bool:
    return added(partitions(answer.topics), "end_offset")


@bug(ApiKey.DESCRIBE_LOG_DIRS)
def a_size_in_blocks(answer: Any) -> bool:
    found = [each for result in answer.results for each in partitions(result.topics)]
    return added([each for each in found if each.partition_size], "partition_size", 7)


@bug(ApiKey.API_VERSIONS)
def a_version_too_many(answer: Any) -> bool:
    return added(answer.api_keys, "max_version")


@bug(ApiKey.FIND_COORDINATOR)
def a_coordinator_that_is_nowhere(answer: Any) -> bool:
    return put([each for each in answer.coordinators if each.host], "host", "")


@bug(ApiKey.DESCRIBE_CONFIGS)
def a_value_as_it_was_written(answer: Any) -> bool:
    found = [config for each in answer.results for config in each.configs if config.value]
    return put(found, "value", f" {found[0].value} ") if found else False


@bug(ApiKey.DESCRIBE_CONFIGS)
def a_synonym_of_another_value(answer: Any) -> bool:
    found = [config.synonyms for each in answer.results for config in each.configs]
    return put([each for synonyms in found for each in synonyms], "value", "7")


@bug(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def a_level_that_is_none_taken(answer: Any) -> bool:
    return forgiven(answer.responses)


@bug(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def a_bad_config_for_a_bad_request(answer: Any) -> bool:
    return confused(answer.responses, "INVALID_CONFIG", "INVALID_REQUEST")


@bug(ApiKey.INCREMENTAL_ALTER_CONFIGS)
def an_answer_for_another_resource(answer: Any) -> bool:
    return put(answer.responses, "resource_name", "another")


@bug(ApiKey.DELETE_TOPICS)
def a_stale_id_that_deletes(answer: Any) -> bool:
    return forgiven(answer.responses)


@bug(ApiKey.PRODUCE)
def an_unknown_id_for_an_unknown_topic(answer: Any) -> bool:
    found = partitions(answer.responses, "partition_responses")
    return confused(found, "UNKNOWN_TOPIC_ID", "UNKNOWN_TOPIC_OR_PARTITION")


@bug(ApiKey.FETCH)
def records_of_the_topic_that_was(answer: Any) -> bool:
    found = [each for each in partitions(answer.responses) if each.error_code]
    return put(found, "records", b"left over")


def forgiven(answers: Any) -> bool:
    """The first that was refused is taken."""
    return put([each for each in answers if each.error_code], "error_code", 0)


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
        found.append(Kept(api, version, kafka, frame, side.as_it_is_now()))

    return keep


@pytest.fixture(scope="module")
def kept(pair: Pair) -> list[Kept]:
    """The answers of `PLAYED`."""
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
        answer = read_answer(each.api, each.version, each.frame)
        before = differences(each.kafka, flatten(answer, each.version, each.side))
        if change(answer):
            after = differences(each.kafka, flatten(answer, each.version, each.side))
            # A known difference may hide what lies in an item that Kafka does not have.
            assert after != before or before, (each.version, answer)
            seen += after != before
    assert seen, "it was seen in no answer"


# Bugs in how an answer is written: our codec, or Kafka's, would not read it as it was meant.
WRITTEN: dict[str, Callable[[bytes], bytes]] = {
    "a byte too many": lambda frame: frame + b"\0",
    "no tagged fields at the end": lambda frame: frame[:-1],
    "a tagged field that is not counted": lambda frame: frame[:-1] + b"\0\1",
    "a list that says it is longer": lambda frame: frame[:9] + bytes([frame[9] + 1]) + frame[10:],
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_bug_in_the_encoding_of_a_response_is_detected(name: str, kept: list[Kept]) -> None:
    each = next(each for each in kept if each.api == ApiKey.LIST_OFFSETS)
    with pytest.raises((ReencodingError, ProtocolError)):
        read_answer(each.api, each.version, WRITTEN[name](each.frame))


def test_there_are_at_least_twenty_bugs() -> None:
    assert len(BUGS) + len(WRITTEN) > 20
