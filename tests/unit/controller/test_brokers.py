"""Registration, heartbeats, sessions and controlled shutdown; the records are Kafka's."""

from __future__ import annotations

import pytest

from barnabas.controller.brokers import BrokerControl, BrokerSessions
from barnabas.controller.config_rules import TopicConfigs
from barnabas.controller.partitions.directories import DirectoryControl
from barnabas.controller.partitions.elections import Elections
from barnabas.controller.registrations import RegistrationControl
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.partition_registration import (
    DIRECTORY_LOST,
    DIRECTORY_UNASSIGNED,
    PartitionRegistration,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.nodes import BrokerHeartbeatResponse
from unit.controller.parts import (
    applied,
    config_of,
    heartbeat,
    kinds,
    registration,
    view_of,
)
from unit.metadata.clusters import (
    directory,
    feature,
    image_of,
    partition,
    three_brokers,
    topic,
)


class Cluster:
    """An image that the control's records are applied to."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        config = config_of()
        timeout_ms = config.broker.integer("broker.session.timeout.ms")
        self.sessions = BrokerSessions(timeout_ms, config.node_id)
        elections = Elections(TopicConfigs(config), self.sessions.suspected)
        self.control = BrokerControl(elections, DirectoryControl(elections), self.sessions)
        self.registrations = RegistrationControl(config, elections, self.sessions, self.control)
        self.now_ms = 0.0
        self.control.begin(image, 0.0)

    def register(self, **options: int) -> int:
        result = self.registrations.register(
            view_of(self.image, self.now_ms),
            registration(**options),  # type: ignore[arg-type]
        )
        assert result.response.error_code == ErrorCode.NONE
        self.image = applied(self.image, result.records)
        return result.response.broker_epoch

    def beat(
        self, epoch: int, **options: int
    ) -> tuple[BrokerHeartbeatResponse, list[tuple[str, int]]]:
        request = heartbeat(epoch, **options)  # type: ignore[arg-type]
        result = self.control.heartbeat(view_of(self.image, self.now_ms), request)
        self.image = applied(self.image, result.records)
        return result.response, kinds(result.records)

    def fence_dead(self) -> list[tuple[str, int]]:
        records: list[tuple[str, int]] = []
        self.control.note_silent(self.now_ms)
        while self.control.has_dead:
            made = self.control.fence_some(view_of(self.image, self.now_ms))
            self.image = applied(self.image, made)
            records += kinds(made)
        return records


def empty() -> Cluster:
    return Cluster(image_of(feature(), feature("eligible.leader.replicas.version", 1)))


def test_a_broker_registers_fenced_under_the_offset_of_the_log_end() -> None:
    cluster = empty()
    assert cluster.register() == 2
    broker = cluster.image.brokers[1]
    assert (broker.epoch, broker.fenced) == (2, True)
    assert broker.listeners["PLAINTEXT"].port == 9000


def test_a_repeated_registration_keeps_its_epoch_and_unfences_at_the_newer_record() -> None:
    cluster = empty()
    epoch = cluster.register()
    assert cluster.register() == epoch
    assert cluster.image.brokers[1].epoch == epoch
    assert cluster.beat(epoch, offset=epoch)[0].is_fenced
    assert not cluster.beat(epoch, offset=epoch + 1)[0].is_fenced


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"max_metadata_version": 20}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_an_incompatible_broker_is_refused(options: dict[str, str], error: ErrorCode) -> None:
    cluster = empty()
    request = registration(**options)  # type: ignore[arg-type]
    result = cluster.registrations.register(view_of(cluster.image), request)
    assert (result.records, result.response.error_code) == ([], error)


def test_a_second_process_is_refused_until_the_session_of_the_first_ends() -> None:
    cluster = empty()
    epoch = cluster.register(broker_id=2)
    cluster.beat(epoch, broker_id=2)
    again = registration(broker_id=2, incarnation=7)
    result = cluster.registrations.register(view_of(cluster.image, 8999), again)
    assert result.response.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    result = cluster.registrations.register(view_of(cluster.image, 9000), again)
    assert result.response.error_code == ErrorCode.NONE


def test_the_controllers_own_broker_registers_again_immediately() -> None:
    cluster = empty()
    cluster.beat(cluster.register())
    epoch = cluster.register(incarnation=7)
    assert cluster.image.brokers[1].epoch == epoch


def test_a_broker_is_unfenced_when_it_has_read_its_registration() -> None:
    cluster = empty()
    epoch = cluster.register()
    answer, records = cluster.beat(epoch, offset=epoch - 1)
    assert (answer.is_fenced, answer.is_caught_up, records) == (True, False, [])
    answer, records = cluster.beat(epoch, offset=epoch)
    assert (answer.is_fenced, answer.is_caught_up) == (False, True)
    assert records == [("BrokerRegistrationChangeRecord", 0)]
    assert not cluster.image.brokers[1].fenced
    assert cluster.beat(epoch)[1] == []


def test_heartbeats_of_other_broker_epochs_are_refused() -> None:
    cluster = empty()
    epoch = cluster.register()
    assert cluster.beat(epoch + 1)[0].error_code == ErrorCode.STALE_BROKER_EPOCH
    assert cluster.beat(epoch, broker_id=9)[0].error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_controlled_shutdown_moves_leaders_before_it_is_allowed() -> None:
    cluster = Cluster(
        three_brokers(topic("a", 1), partition(1, 0, (1, 2)), topic("b", 2), partition(2))
    )
    answer, records = cluster.beat(5, shut_down=True)
    assert not answer.should_shut_down
    assert records[0] == ("BrokerRegistrationChangeRecord", 1)
    shared, alone = (cluster.image.topics.partition(name, 0) for name in "ab")
    assert shared is not None
    assert alone is not None
    assert (shared.leader, shared.isr) == (2, (2,))
    assert (alone.leader, alone.isr, alone.elr) == (-1, (), (1,))
    for _ in range(2):
        assert not cluster.beat(5, shut_down=True)[0].should_shut_down
    cluster.beat(5, broker_id=3)
    cluster.beat(5, broker_id=2, offset=0)
    assert not cluster.beat(5, shut_down=True)[0].should_shut_down
    cluster.beat(5, broker_id=2)
    answer, records = cluster.beat(5, shut_down=True)
    assert answer.should_shut_down
    assert records == [("BrokerRegistrationChangeRecord", 0)]
    assert cluster.image.brokers[1].fenced


def test_a_broker_leads_again_after_a_clean_restart_without_recovery() -> None:
    cluster = Cluster(three_brokers(topic("b", 2), partition(2)))
    cluster.beat(5, shut_down=True)
    cluster.beat(5, shut_down=True)
    epoch = cluster.register(previous_epoch=5)
    cluster.beat(epoch)
    found = cluster.image.topics.partition("b", 0)
    assert found is not None
    assert (found.leader, found.isr, found.elr) == (1, (1,), ())
    assert found.leader_recovery_state == 0


def test_a_broker_leads_again_after_a_crash_as_the_last_known_leader() -> None:
    cluster = Cluster(three_brokers(topic("b", 2), partition(2)))
    epoch = cluster.register()
    found = cluster.image.topics.partition("b", 0)
    assert found is not None
    assert (found.leader, found.isr, found.elr, found.last_known_elr) == (-1, (), (), (1,))
    cluster.beat(epoch)
    found = cluster.image.topics.partition("b", 0)
    assert found is not None
    assert (found.leader, found.isr, found.leader_recovery_state) == (1, (1,), 1)


def test_a_silent_broker_is_fenced_but_never_the_controllers_own() -> None:
    cluster = Cluster(three_brokers(topic("a", 1), partition(1, 0, (2, 3, 1))))
    assert cluster.sessions.next_deadline() == 9000
    cluster.now_ms = 5000
    cluster.beat(5, broker_id=3)
    cluster.now_ms = 9000
    assert cluster.fence_dead() == [
        ("PartitionChangeRecord", 2),
        ("BrokerRegistrationChangeRecord", 0),
    ]
    assert [each.id for each in cluster.image.brokers.values() if each.fenced] == [2]
    found = cluster.image.topics.partition("a", 0)
    assert found is not None
    assert (found.leader, found.isr) == (3, (3, 1))
    assert cluster.fence_dead() == []
    cluster.now_ms = 14_000
    assert cluster.fence_dead()
    assert cluster.image.brokers[3].fenced
    assert cluster.sessions.next_deadline() is None
    assert not cluster.image.brokers[1].fenced


def test_a_broker_that_requests_fencing_is_fenced() -> None:
    cluster = Cluster(three_brokers(topic("a", 1), partition(1, 0, (2, 3))))
    answer, _ = cluster.beat(5, broker_id=2, fence=True)
    assert answer.is_fenced
    found = cluster.image.topics.partition("a", 0)
    assert found is not None
    assert found.leader == 3


def test_cordoned_directories_write_one_record() -> None:
    cluster = empty()
    epoch = cluster.register()
    request = heartbeat(epoch)
    request.cordoned_log_dirs = []
    result = cluster.control.heartbeat(view_of(cluster.image), request)
    assert kinds(result.records)[-1] == ("BrokerRegistrationChangeRecord", 3)
    image = applied(cluster.image, result.records)
    assert cluster.control.heartbeat(view_of(image), request).records == []


def test_cordoned_directories_write_no_record_that_earlier_nodes_do_not_know() -> None:
    # metadata.version 3.9-IV0, which Kafka 3.9 finalizes.
    cluster = Cluster(image_of(feature(level=21)))
    epoch = cluster.register()
    cluster.beat(epoch)
    request = heartbeat(epoch)
    request.cordoned_log_dirs = []
    assert cluster.control.heartbeat(view_of(cluster.image), request).records == []


def three_replicas() -> Cluster:
    """Return a controller that has just become active, and has no heartbeat of any broker."""
    return Cluster(three_brokers(topic("a", 1), partition(1, 0, (1, 2, 3))))


def shared(cluster: Cluster) -> PartitionRegistration:
    found = cluster.image.topics.partition("a", 0)
    assert found is not None
    return found


def test_a_broker_without_heartbeat_is_not_elected_by_a_new_controller() -> None:
    cluster = three_replicas()
    cluster.register(broker_id=1, incarnation=7)
    found = shared(cluster)
    assert (found.leader, found.isr, found.last_known_elr) == (-1, (2, 3), (1,))


def test_a_broker_is_elected_after_its_first_heartbeat() -> None:
    cluster = three_replicas()
    cluster.register(broker_id=1, incarnation=7)
    assert cluster.beat(5, broker_id=3)[1] == [("PartitionChangeRecord", 2)]
    assert (shared(cluster).leader, shared(cluster).isr) == (3, (2, 3))
    assert cluster.beat(5, broker_id=3)[1] == []


def test_brokers_that_die_together_all_stay_eligible() -> None:
    cluster = three_replicas()
    cluster.register(broker_id=1, incarnation=7)
    cluster.now_ms = 9000
    cluster.fence_dead()
    found = shared(cluster)
    assert (found.leader, found.isr, found.elr) == (-1, (), (2, 3))


def test_brokers_with_heartbeats_that_die_together_stay_eligible() -> None:
    cluster = three_replicas()
    for broker_id in (2, 3):
        cluster.beat(5, broker_id=broker_id)
    cluster.register(broker_id=1, incarnation=7)
    assert shared(cluster).leader == 2
    cluster.now_ms = 9000
    cluster.fence_dead()
    assert (shared(cluster).leader, shared(cluster).isr, shared(cluster).elr) == (-1, (), (2, 3))


def test_brokers_whose_connections_close_together_stay_eligible() -> None:
    cluster = three_replicas()
    for broker_id in (2, 3):
        cluster.beat(5, broker_id=broker_id)
    cluster.register(broker_id=1, incarnation=7)
    for broker_id in (2, 3):
        cluster.control.note_lost(cluster.image, broker_id, 5)
    cluster.fence_dead()
    assert (shared(cluster).leader, shared(cluster).isr, shared(cluster).elr) == (-1, (), (2, 3))


def test_a_silent_broker_is_not_elected_when_the_session_of_another_ends() -> None:
    cluster = three_replicas()
    for broker_id in (1, 2, 3):
        cluster.beat(5, broker_id=broker_id)
    cluster.now_ms = 1000
    cluster.beat(5, broker_id=3)
    cluster.now_ms = 9000
    cluster.fence_dead()
    found = shared(cluster)
    assert (found.leader, found.isr) == (1, (1, 3))
    cluster = three_replicas()
    cluster.register(broker_id=1, incarnation=7)
    cluster.now_ms = 1000
    cluster.beat(5, broker_id=3)
    assert shared(cluster).leader == 3
    cluster.now_ms = 9000
    cluster.fence_dead()
    assert (shared(cluster).leader, shared(cluster).isr) == (-1, (3,))


def test_a_broker_without_its_connection_is_not_elected_until_its_next_heartbeat() -> None:
    cluster = three_replicas()
    for broker_id in (1, 2, 3):
        cluster.beat(5, broker_id=broker_id)
    cluster.control.note_suspected(cluster.image, 3, 5)
    # Another life of broker 2 is not this one.
    cluster.control.note_suspected(cluster.image, 2, 4)
    cluster.register(broker_id=1, incarnation=7)
    assert shared(cluster).leader == 2
    cluster.control.note_lost(cluster.image, 2, 5)
    while cluster.control.has_dead:
        made = cluster.control.fence_some(view_of(cluster.image, cluster.now_ms))
        cluster.image = applied(cluster.image, made)
    assert (shared(cluster).leader, shared(cluster).elr) == (-1, (2,))
    cluster.beat(5, broker_id=3)
    assert shared(cluster).leader == 3


def test_a_registration_without_an_earlier_directory_marks_possible_data_loss() -> None:
    record = partition(1, 0, (1, 2))
    record.directories = [DIRECTORY_UNASSIGNED, directory(2)]
    cluster = Cluster(three_brokers(topic("a", 1), record))
    for broker_id in (1, 2, 3):
        cluster.beat(5, broker_id=broker_id)
    request = registration(broker_id=1, incarnation=7)
    request.log_dirs = [directory(11)]
    result = cluster.registrations.register(view_of(cluster.image), request)
    cluster.image = applied(cluster.image, result.records)
    assert shared(cluster).directories == (DIRECTORY_LOST, directory(2))
