"""A member under the consumer group protocol, with a scripted coordinator."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.errors import BrokerError, ClientError
from barnabas.client.group.group_calls import HeartbeatState
from barnabas.client.group.membership import GroupGeneration
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import ConsumerGroupHeartbeatResponse
from barnabas.runtime.rng import SeededRng
from barnabas.sim.network import NetworkConditions
from unit.client.group.modern_group import INTERVAL_MS, Group, T, U, answer, owned


def test_the_join_is_a_full_heartbeat_of_epoch_0_with_a_generated_id() -> None:
    group = Group(
        client_rack="r1",
        group_remote_assignor="range",
        max_poll_interval_ms=70_000,
        group_instance_id="i",
    )
    group.run()
    request = group.heard[0]
    assert (request.group_id, request.member_epoch, request.instance_id) == ("g", 0, "i")
    assert len(request.member_id) == 22
    assert (request.rack_id, request.server_assignor) == ("r1", "range")
    assert request.rebalance_timeout_ms == 70_000
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["t"], None)
    assert owned(request) == {}


def test_an_assignment_is_applied_and_acknowledged_at_once() -> None:
    group = Group()
    group.run()
    assert group.host.done == ["commit", "assign t-0 t-1 +t-0 +t-1"]
    assert len(group.heard) == 2
    acknowledged = group.heard[1]
    assert (acknowledged.member_epoch, owned(acknowledged)) == (1, {T: [0, 1]})
    assert acknowledged.subscribed_topic_names is None
    assert acknowledged.rebalance_timeout_ms == -1
    assert group.member.is_reconciled
    assert group.member.generation == GroupGeneration(
        "g", 1, acknowledged.member_id, None, is_epoch=True
    )


def test_heartbeats_continue_without_polls_and_contain_only_the_member() -> None:
    group = Group().joined()
    group.run(3 * INTERVAL_MS, polling=False)
    assert len(group.heard) == 3
    for request in group.heard:
        assert (request.member_epoch, owned(request)) == (1, None)
        assert request.subscribed_topic_names is None
    first, second, third = group.heard_ms
    assert second - first == pytest.approx(INTERVAL_MS, abs=5)
    assert third - second == pytest.approx(INTERVAL_MS, abs=5)


def test_revoked_partitions_are_committed_and_acknowledged_before_new_ones() -> None:
    group = Group().joined()
    group.give({T: [1, 2]})
    assert group.host.done == ["commit -t-0", "revoke t-0", "assign t-1 t-2 +t-2"]
    assert [owned(request) for request in group.heard] == [None, {T: [1, 2]}]


def test_nothing_is_reconciled_while_the_user_does_not_poll() -> None:
    group = Group().joined()
    group.target = {T: [0]}
    group.run(3 * INTERVAL_MS, polling=False)
    assert group.host.done == []
    assert not group.member.is_reconciled
    assert [owned(request) for request in group.heard] == [None] * 3
    group.run()
    assert group.host.done == ["commit -t-1", "revoke t-1", "assign t-0"]


def test_an_empty_first_assignment_is_reported_too() -> None:
    group = Group()
    group.target = {}
    group.run()
    assert group.host.done == ["commit", "assign"]
    assert group.member.is_reconciled


def test_a_repeated_assignment_changes_nothing() -> None:
    group = Group().joined()
    group.give({T: [1, 0]})
    assert group.host.done == []
    assert group.member.is_reconciled
    assert group.member.generation.generation_id == 2


def test_a_newer_target_waits_for_the_end_of_the_current_reconciliation() -> None:
    group = Group().joined()
    group.host.slow.add("revoke")
    group.give({T: [0]})
    group.give({T: [0, 3]})
    assert group.host.done == ["commit -t-1", "revoke t-1"]
    group.host.slow.clear()
    group.host.finish()
    group.run()
    assert group.host.done[2:] == ["assign t-0", "commit", "assign t-0 t-3 +t-3"]
    assert owned(group.heard[-1]) == {T: [0, 3]}
    assert group.member.is_reconciled


def test_the_revocation_of_partitions_that_were_not_taken_over_is_acknowledged() -> None:
    """Otherwise the coordinator waits for it until the rebalance timeout."""
    group = Group().joined()
    group.target = {T: [0, 1, 2]}
    group.run(INTERVAL_MS + 100, polling=False)
    assert not group.member.is_reconciled
    group.target = {T: [0, 1]}
    group.run(INTERVAL_MS + 100, polling=False)
    assert group.host.done == []
    assert [owned(request) for request in group.heard] == [None, None, {T: [0, 1]}]
    assert group.member.is_reconciled


def test_a_slow_commit_delays_the_revocation_but_not_the_heartbeats() -> None:
    group = Group().joined()
    group.host.slow.add("commit")
    group.give({T: []})
    group.run(2 * INTERVAL_MS)
    assert group.host.done == ["commit -t-0 -t-1"]
    assert len(group.heard) >= 3
    wakes = group.host.wakes
    group.host.finish()
    assert group.host.wakes > wakes
    group.run()
    assert group.host.done == ["commit -t-0 -t-1", "revoke t-0 t-1", "assign"]


@pytest.mark.parametrize("step", ["revoke", "assign"])
def test_a_callback_exception_is_raised_by_one_poll_and_the_callback_not_repeated(
    step: str,
) -> None:
    group = Group().joined()
    group.host.failures[step] = ZeroDivisionError()
    group.target = {T: [1, 2]}
    with pytest.raises(ZeroDivisionError):
        group.run(2 * INTERVAL_MS)
    group.run()
    assert group.host.done == ["commit -t-0", "revoke t-0", "assign t-1 t-2 +t-2"]
    assert owned(group.heard[-1]) == {T: [1, 2]}
    assert group.member.is_reconciled


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_loses_its_partitions_and_rejoins_with_the_same_id(code: ErrorCode) -> None:
    group = Group().joined()
    member_id = group.member.generation.member_id
    group.say = [code]
    group.run(2 * INTERVAL_MS, polling=False)
    assert group.member.generation == GroupGeneration("g")
    assert len(group.heard) == 1
    group.target = {T: [3]}
    group.run()
    assert group.host.done == ["lose t-0 t-1", "commit", "assign t-3 +t-3"]
    joining = group.heard[1]
    assert (joining.member_epoch, joining.member_id, owned(joining)) == (0, member_id, {})
    assert joining.subscribed_topic_names == ["t"]


def test_a_member_fenced_during_a_reconciliation_abandons_it() -> None:
    group = Group().joined()
    group.host.slow.add("revoke")
    group.target = {T: [0]}
    group.run(INTERVAL_MS + 100)
    group.say = [ErrorCode.FENCED_MEMBER_EPOCH]
    group.run(INTERVAL_MS + 100)
    group.host.slow.clear()
    group.target = {T: [2]}
    group.host.finish()
    group.run()
    assert group.host.done == ["commit -t-1", "revoke t-1", "lose t-0", "commit", "assign t-2 +t-2"]


def test_a_missing_response_is_followed_by_a_full_heartbeat() -> None:
    group = Group().joined()
    group.say = [None]
    group.run(INTERVAL_MS + 100)
    group.broker.drop_connections()
    group.run(INTERVAL_MS)
    again = group.heard[1]
    assert (again.member_epoch, owned(again)) == (1, {T: [0, 1]})
    assert again.subscribed_topic_names == ["t"]
    assert again.rebalance_timeout_ms == 300_000
    assert group.host.done == []


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_new_coordinator_receives_a_full_heartbeat(code: ErrorCode) -> None:
    group = Group().joined()
    lookups = group.broker.coordinator_lookups
    group.say = [code]
    group.run(INTERVAL_MS + 500)
    assert group.broker.coordinator_lookups == lookups + 1
    assert owned(group.heard[1]) == {T: [0, 1]}
    assert group.host.done == []


def test_requests_to_a_loading_coordinator_are_repeated_with_backoff() -> None:
    group = Group().joined()
    group.say = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3
    lookups = group.broker.coordinator_lookups
    group.run(INTERVAL_MS + 1000)
    first, second, third, fourth = group.heard_ms[:4]
    assert second - first < third - second < fourth - third
    assert group.broker.coordinator_lookups == lookups
    assert group.member.is_reconciled


def test_a_missing_coordinator_is_awaited() -> None:
    group = Group()
    group.broker.coordinator_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    group.run(3000)
    assert 3 <= group.broker.coordinator_lookups <= 10
    group.broker.coordinator_error = 0
    group.run(2000)
    assert group.member.is_reconciled


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ],
)
def test_an_error_that_is_not_retriable_is_raised_by_every_poll_and_ends_heartbeats(
    code: ErrorCode,
) -> None:
    group = Group().joined()
    group.say = [code]
    with pytest.raises(BrokerError, match=code.name):
        group.run(2 * INTERVAL_MS)
    assert group.host.done == ["lose t-0 t-1"]
    with pytest.raises(BrokerError, match=code.name):
        group.member.poll()
    group.run(3 * INTERVAL_MS, polling=False)
    assert len(group.heard) == 1


def test_a_changed_subscription_restarts_a_refused_member() -> None:
    group = Group()
    group.say = [ErrorCode.INVALID_REGULAR_EXPRESSION]
    group.host.subscribed_regex = "("
    with pytest.raises(BrokerError):
        group.run()
    group.host.subscribed_regex = "t.*"
    group.member.on_subscription_changed()
    group.run()
    assert group.heard[1].subscribed_topic_regex == "t.*"
    assert group.member.is_reconciled


def test_a_topic_without_read_permission_is_an_error_and_the_member_stays() -> None:
    group = Group().joined()
    group.say = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        group.run(2 * INTERVAL_MS)
    group.run(2 * INTERVAL_MS)
    assert group.member.is_reconciled
    assert group.host.done == []


def test_a_broker_without_the_protocol_is_an_error_that_names_the_setting() -> None:
    group = Group()
    del group.broker.answers[ApiKey.CONSUMER_GROUP_HEARTBEAT]
    with pytest.raises(ClientError, match=r"group\.protocol=classic") as raised:
        group.run()
    assert raised.value.error_code is ErrorCode.UNSUPPORTED_VERSION


def test_a_pattern_for_the_broker_needs_a_broker_that_matches() -> None:
    group = Group()
    group.broker.max_versions[ApiKey.CONSUMER_GROUP_HEARTBEAT] = 0
    group.host.subscribed_regex = "t.*"
    with pytest.raises(ClientError, match="use a pattern that the client matches"):
        group.run()


def test_a_changed_subscription_is_sent_at_once_without_other_fields() -> None:
    group = Group().joined()
    group.host.subscribed_topics = ["u", "t"]
    group.member.on_subscription_changed()
    group.run()
    (told,) = group.heard
    assert told.subscribed_topic_names == ["t", "u"]
    assert owned(told) is None
    group.host.subscribed_topics = []
    group.host.subscribed_regex = "[tu]"
    group.member.on_subscription_changed()
    group.run()
    assert group.heard[1].subscribed_topic_names == []
    assert group.heard[1].subscribed_topic_regex == "[tu]"
    group.host.subscribed_regex = None
    group.member.on_subscription_changed()
    group.run()
    assert group.heard[2].subscribed_topic_regex == ""


def test_a_subscription_change_during_a_heartbeat_is_sent_after_its_response() -> None:
    group = Group().joined()
    group.world.run_for(INTERVAL_MS - 100)
    assert group.world.run_until(lambda: group.member._heartbeats.state is HeartbeatState.IN_FLIGHT)
    group.host.subscribed_topics = ["t", "u"]
    group.member.on_subscription_changed()
    group.run(200)
    told = [request.subscribed_topic_names for request in group.heard]
    assert ["t", "u"] in told


def test_topics_without_a_known_name_are_requested_by_id_and_the_rest_is_assigned() -> None:
    group = Group()
    new = b"n" * 16
    group.target = {T: [0], new: [0]}
    group.run(500)
    assert group.host.done == ["commit", "assign t-0 +t-0"]
    assert owned(group.heard[-1]) == {T: [0]}
    assert not group.member.is_reconciled
    group.broker.topics["new"] = (new, 1)
    group.run(2000)
    assert group.host.done[2:] == ["commit", "assign new-0 t-0 +new-0"]
    assert {T: [0], new: [0]} in [owned(request) for request in group.heard]
    assert group.member.is_reconciled


def test_partitions_of_a_deleted_topic_are_revoked_by_name() -> None:
    group = Group()
    group.target = {T: [0], U: [0]}
    group.joined()
    group.cluster.metadata.names.clear()
    group.cluster.metadata.topics.clear()
    del group.broker.topics["u"]
    group.give({T: [0]})
    assert group.host.done == ["commit -u-0", "revoke u-0", "assign t-0"]


def test_a_member_without_polls_leaves_and_rejoins_with_the_next_poll() -> None:
    group = Group(max_poll_interval_ms=5000).joined()
    group.run(5500, polling=False)
    assert group.heard[-1].member_epoch == -1
    assert group.member.generation == GroupGeneration("g")
    heard = len(group.heard)
    group.run(3000, polling=False)
    assert len(group.heard) == heard
    group.target = {T: [2]}
    group.run()
    assert group.host.done == ["lose t-0 t-1", "commit", "assign t-2 +t-2"]
    assert group.heard[heard].member_epoch == 0


def test_timely_polls_keep_the_membership_for_any_interval() -> None:
    group = Group(max_poll_interval_ms=500).joined()
    group.run(5000)
    assert group.host.done == []
    assert all(request.member_epoch == 1 for request in group.heard)
    assert (group.member.next_deadline_ms() or 0) <= group.world.scheduler.now_ms + 250


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_leaving_revokes_partitions_and_sends_the_leave_epoch(
    instance_id: str | None, epoch: int
) -> None:
    group = Group(group_instance_id=instance_id).joined()
    left: list[bool] = []
    group.member.leave("closed", lambda: left.append(True))
    assert group.host.done == ["revoke t-0 t-1"]
    assert not left
    group.run(3 * INTERVAL_MS)
    assert left == [True]
    (goodbye,) = group.heard
    assert (goodbye.member_epoch, goodbye.instance_id) == (epoch, instance_id)
    assert goodbye.subscribed_topic_names is None


def test_a_member_that_never_joined_leaves_without_a_request() -> None:
    group = Group()
    left: list[bool] = []
    group.member.leave("closed", lambda: left.append(True))
    assert left == [True]
    group.run()
    assert group.heard == []


def test_a_member_that_leaves_before_the_coordinator_is_found_sends_nothing() -> None:
    group = Group()
    group.member.poll()
    assert group.world.run_until(lambda: group.broker.coordinator_lookups == 1)
    left: list[bool] = []
    group.member.leave("closed", lambda: left.append(True))
    assert left == [True]
    group.world.run_for(1000)
    assert group.heard == []


def test_leaving_does_not_wait_for_an_unreachable_coordinator() -> None:
    group = Group().joined()
    group.broker.coordinator_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    group.say = [ErrorCode.NOT_COORDINATOR]
    group.run(2 * INTERVAL_MS)
    left: list[bool] = []
    group.member.leave("closed", lambda: left.append(True))
    assert left == [True]


def test_a_refusal_contains_the_message_of_the_coordinator() -> None:
    group = Group()
    refusal = ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.UNSUPPORTED_ASSIGNOR,
        error_message="there are uniform and range",
        member_epoch=-1,
        heartbeat_interval_ms=0,
    )
    group.say = [refusal]
    with pytest.raises(BrokerError, match="there are uniform and range"):
        group.run()


def test_leaving_during_the_join_sends_the_leave_epoch_too() -> None:
    group = Group()
    group.say = [None]
    group.run()
    left: list[bool] = []
    group.member.leave("closed", lambda: left.append(True))
    group.run()
    assert [request.member_epoch for request in group.heard] == [0, -1]


def test_a_fenced_member_that_leaves_only_loses_its_partitions() -> None:
    group = Group().joined()
    group.say = [ErrorCode.FENCED_MEMBER_EPOCH]
    group.run(INTERVAL_MS + 100, polling=False)
    left: list[bool] = []
    group.member.leave("closed", lambda: left.append(True))
    assert left == [True]
    assert group.host.done == ["lose t-0 t-1"]
    group.run(polling=False)
    assert len(group.heard) == 1


def test_after_stop_nothing_is_sent() -> None:
    group = Group().joined()
    group.member.stop()
    group.run(5 * INTERVAL_MS)
    assert group.heard == []


def test_a_refused_commit_triggers_a_heartbeat_at_once() -> None:
    group = Group().joined()
    error = BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, "commit")
    group.member.on_commit_error(error, group.member.generation)
    group.member.on_commit_error(error, GroupGeneration("g", 1, "another"))
    group.run()
    assert len(group.heard) == 1


def test_a_pattern_that_cannot_be_matched_yet_is_tried_again_before_the_join() -> None:
    group = Group()
    group.host.failures["match"] = BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, "t")
    group.member.poll()
    group.world.run_for(50)
    group.member.poll()
    assert group.heard == []
    group.run(500)
    assert group.member.is_reconciled


@pytest.mark.parametrize("seed", range(25))
def test_the_member_reaches_its_target_despite_network_failures(
    seed: int,
) -> None:
    """Delays, partitions, resets, fencing and new targets from a seed; then none."""
    group = Group(request_timeout_ms=500, reconnect_backoff_max_ms=100)
    group.world.network.conditions = NetworkConditions(reset_chance=0.2, delay_max_ms=200)
    rng = SeededRng(seed)
    wanted: dict[bytes, list[int]] = {T: [0]}
    epoch = 1
    calm = False

    def say(request: Any) -> ConsumerGroupHeartbeatResponse:
        nonlocal epoch, wanted
        if request.member_epoch < 0:
            return answer(request, request.member_epoch)
        if not calm and rng.random() < 0.1:
            return answer(request, -1, code=ErrorCode.FENCED_MEMBER_EPOCH)
        changed = not calm and rng.random() < 0.3
        if changed:
            epoch += 1
            wanted = {T: [n for n in range(4) if rng.random() < 0.5]}
        # All that there is to say is answered with all that the member is to have.
        full = request.rebalance_timeout_ms >= 0
        return answer(request, epoch, wanted if changed or full else None)

    group.broker.answers[ApiKey.CONSUMER_GROUP_HEARTBEAT] = say
    group.run(20_000)
    group.world.network.conditions = NetworkConditions()
    calm = True
    group.run(5_000)
    assert group.member.is_reconciled
    assert group.host.owned == {TopicPartition("t", number) for number in wanted[T]}
    assert epoch > 1


def test_the_partition_of_an_assignment_is_a_topic_partition() -> None:
    group = Group().joined()
    assert group.host.owned == {TopicPartition("t", 0), TopicPartition("t", 1)}
