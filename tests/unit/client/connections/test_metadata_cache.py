"""The cached metadata of the cluster."""

from __future__ import annotations

from barnabas.client.connections.metadata_cache import MetadataCache
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from unit.client.connections.metadata_responses import ID, OTHER_ID, answer

TP = TopicPartition("t", 0)


def cache(leader: int = 1, epoch: int = 5) -> MetadataCache:
    made = MetadataCache()
    made.update(answer(leader, epoch), None)
    return made


def test_leaders_and_ids_are_cached() -> None:
    made = cache()
    assert made.leader(TP) == 1
    assert made.names[ID] == "t"


def test_an_older_leader_epoch_changes_nothing() -> None:
    made = cache(leader=1, epoch=5)
    made.update(answer(2, 4), ["t"])
    assert made.leader(TP) == 1


def test_a_newer_leader_epoch_is_applied() -> None:
    made = cache(leader=1, epoch=5)
    made.update(answer(2, 6), ["t"])
    assert made.leader(TP) == 2


def test_a_recreated_topic_may_have_a_lower_epoch() -> None:
    made = cache(leader=1, epoch=5)
    made.update(answer(2, 0, OTHER_ID), ["t"])
    assert made.leader(TP) == 2
    assert ID not in made.names


def test_a_deleted_topic_is_removed_and_its_error_kept() -> None:
    made = cache()
    made.update(answer(-1, -1, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ["t"])
    assert made.partition(TP) is None
    assert made.errors["t"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_leader_in_a_response_is_applied_if_it_is_newer() -> None:
    made = cache(leader=1, epoch=5)
    assert not made.move_leader(TP, 2, 5)
    assert made.move_leader(TP, 2, 6)
    assert made.leader(TP) == 2


def test_similar_names_of_a_misspelt_topic_are_found() -> None:
    made = cache()
    made.topics["flights"] = made.topics["t"]
    assert made.similar("flihgts") == ["flights"]


def test_a_broker_that_lags_behind_does_not_bring_a_deleted_topic_back() -> None:
    made = cache()
    made.note_deleted([ID])
    assert made.topics == {}
    assert made.names == {}
    made.update(answer(1, 5), ["t"])
    assert made.topics == {}
    assert made.errors == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    made.update(answer(2, 0, OTHER_ID), ["t"])
    assert made.topic_id("t") == OTHER_ID
    assert made.errors == {}
    made.update(answer(1, 5), ["t"])
    assert made.topic_id("t") == OTHER_ID
    assert made.errors == {}


def test_only_the_last_deletions_are_remembered() -> None:
    made = MetadataCache()
    made.note_deleted([ID, *(number.to_bytes(16, "big") for number in range(2_000))])
    made.update(answer(1, 5), ["t"])
    assert made.topic_id("t") == ID


def test_topics_without_an_id_are_not_taken_for_deleted_ones() -> None:
    made = MetadataCache()
    made.note_deleted([bytes(16)])
    made.update(answer(1, 5, bytes(16)), ["t"])
    assert "t" in made.topics
