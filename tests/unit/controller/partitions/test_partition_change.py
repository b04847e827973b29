"""Elections: ISR first, then eligible replicas, then (uncleanly) the last known leader or any."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from barnabas.controller.partitions.partition_change import (
    Candidates,
    Election,
    ElectionRules,
    changed_partition,
)
from barnabas.metadata.broker_registration import BrokerRegistration
from barnabas.metadata.partition_registration import PartitionRegistration

TOPIC_ID = bytes(15) + b"\x01"


def partition(
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] | None = None,
    leader: int = 1,
    elr: tuple[int, ...] = (),
    last_known_elr: tuple[int, ...] = (),
) -> PartitionRegistration:
    return PartitionRegistration(
        replicas=replicas,
        directories=(bytes(16),) * len(replicas),
        isr=replicas if isr is None else isr,
        leader=leader,
        leader_epoch=4,
        partition_epoch=9,
        elr=elr,
        last_known_elr=last_known_elr,
    )


def rules(*live: int, min_isr: int = 1, suspected: tuple[int, ...] = ()) -> ElectionRules:
    brokers = {each: BrokerRegistration(each, 5, bytes(16), {}, {}, fenced=False) for each in live}
    return ElectionRules(33, True, min_isr, Candidates(brokers, suspected={*suspected}))


def change(
    before: PartitionRegistration, target: tuple[int, ...], by: ElectionRules
) -> PartitionRegistration:
    made = changed_partition(0, TOPIC_ID, before, target, by)
    return before if made is None else before.merge(made[0])


def test_nothing_changes_while_the_leader_is_in_the_isr_and_live() -> None:
    assert changed_partition(0, TOPIC_ID, partition(), (1, 2, 3), rules(1, 2, 3)) is None


def test_a_smaller_isr_keeps_leader_and_leader_epoch() -> None:
    after = change(partition(), (1, 3), rules(1, 3))
    assert (after.isr, after.leader, after.leader_epoch) == ((1, 3), 1, 4)
    assert after.partition_epoch == 10


def test_the_first_live_replica_of_the_isr_takes_over() -> None:
    after = change(partition((3, 1, 2), leader=3), (1, 2), rules(2))
    assert (after.leader, after.leader_epoch) == (2, 5)


def test_the_preferred_replica_leads_again_only_on_request() -> None:
    before = partition(leader=2)
    assert change(before, (1, 2, 3), rules(1, 2, 3)).leader == 2
    preferred = replace(rules(1, 2, 3), election=Election.PREFERRED)
    assert change(before, (1, 2, 3), preferred).leader == 1


def test_a_replica_that_leaves_an_isr_below_the_minimum_stays_eligible() -> None:
    after = change(partition(), (1,), rules(1, min_isr=2))
    assert (after.isr, after.elr) == ((1,), (2, 3))
    assert change(partition(), (1, 2), rules(1, 2, min_isr=2)).elr == ()


def test_eligible_replicas_are_cleared_when_the_isr_reaches_the_minimum() -> None:
    before = partition(isr=(1,), elr=(2, 3))
    assert change(before, (1, 2), rules(1, 2, min_isr=2)).elr == ()


def test_the_last_isr_member_leaves_an_empty_isr_and_becomes_last_known() -> None:
    after = change(partition((1,)), (), rules())
    assert (after.isr, after.leader, after.elr, after.last_known_elr) == ((), -1, (1,), (1,))


def test_an_eligible_replica_is_elected_cleanly() -> None:
    before = partition((1,), isr=(), leader=-1, elr=(1,), last_known_elr=(1,))
    after = change(before, (), rules(1))
    assert (after.isr, after.leader, after.leader_recovery_state) == ((1,), 1, 0)
    assert (after.elr, after.last_known_elr) == ((), ())


def test_the_last_known_leader_is_elected_uncleanly_without_eligible_replicas() -> None:
    before = partition((1,), isr=(), leader=-1, last_known_elr=(1,))
    after = change(before, (), rules(1))
    assert (after.isr, after.leader, after.leader_recovery_state) == ((1,), 1, 1)
    assert after.last_known_elr == ()


def test_the_last_known_leader_is_not_elected_while_a_replica_is_eligible() -> None:
    before = partition((1, 2), isr=(), leader=-1, elr=(2,), last_known_elr=(1,))
    assert change(before, (), rules(1)).leader == -1


def test_an_unclean_shutdown_ends_eligibility() -> None:
    by = replace(rules(), unclean_shutdown=frozenset({1}))
    after = change(partition((1,)), (), by)
    assert (after.isr, after.elr, after.last_known_elr) == ((), (), (1,))


@pytest.mark.parametrize(
    "before",
    [
        partition((1, 2), isr=(), leader=-1, last_known_elr=(1,)),
        partition((1, 2), isr=(), leader=-1, elr=(1,), last_known_elr=(1,)),
        partition((1, 2), isr=(1,), leader=-1),
    ],
    ids=["last known leader", "eligible", "in sync"],
)
@pytest.mark.parametrize("election", list(Election))
def test_a_replica_is_not_elected_by_the_change_of_its_unclean_shutdown(
    before: PartitionRegistration, election: Election
) -> None:
    by = replace(rules(1), unclean_shutdown=frozenset({1}), election=election)
    target = tuple(each for each in before.isr if each != 1)
    after = change(before, target, by)
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (-1, (), (), (1,))


def test_replicas_that_die_together_stay_eligible() -> None:
    after = change(partition(), (2, 3), rules(2, 3, suspected=(2, 3)))
    assert (after.leader, after.isr, after.elr) == (-1, (2, 3), (1,))
    after = change(after, (3,), rules(3, suspected=(3,)))
    after = change(after, (), rules())
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (-1, (), (1, 2, 3), (1,))


def test_a_suspected_leader_stops_leading_when_another_replica_dies() -> None:
    after = change(partition(leader=3), (1, 3), rules(1, 3, suspected=(3,)))
    assert (after.leader, after.isr) == (1, (1, 3))


def test_no_unclean_election_happens_while_an_isr_member_is_suspected() -> None:
    unclean = replace(rules(2, 3, suspected=(3,)), election=Election.UNCLEAN)
    before = partition(isr=(1, 3))
    assert change(before, (3,), unclean).leader == -1
    # It is dead: now any live replica may.
    assert change(before, (3,), replace(rules(2), election=Election.UNCLEAN)).leader == 2


def test_a_leader_that_can_commit_alone_ends_the_eligibility_of_others() -> None:
    before = partition(isr=(), leader=-1, elr=(1, 2, 3), last_known_elr=(1,))
    after = change(before, (), rules(2))
    assert (after.leader, after.isr, after.elr) == (2, (2,), ())
    after = change(before, (), rules(2, min_isr=2))
    assert (after.leader, after.isr, after.elr) == (2, (2,), (1, 3))


def test_an_unclean_restart_without_a_leader_adds_a_last_known_replica() -> None:
    before = partition(isr=(), leader=-1, elr=(2, 3), last_known_elr=(1,))
    after = change(before, (), replace(rules(), unclean_shutdown=frozenset({3})))
    assert (after.elr, after.last_known_elr) == ((2,), (1, 3))
    after = change(after, (), replace(rules(3), unclean_shutdown=frozenset({2})))
    assert (after.leader, after.isr, after.leader_recovery_state) == (3, (3,), 1)


@pytest.mark.parametrize("elr_enabled", [True, False])
def test_a_replica_in_an_empty_directory_leaves_isr_eligible_and_last_known(
    elr_enabled: bool,
) -> None:
    before = partition(isr=(3,), leader=-1, elr=(), last_known_elr=(3, 2))
    emptied = replace(rules(3), emptied=frozenset({3}), elr_enabled=elr_enabled)
    after = change(before, (), emptied)
    assert (after.leader, after.isr, after.elr) == (-1, (), ())
    if elr_enabled:
        assert after.last_known_elr == (2,)
        assert change(after, (), rules(2, 3)).leader == 2


def test_a_replica_in_an_empty_directory_is_not_elected_uncleanly_by_that_change() -> None:
    by = replace(rules(3), emptied=frozenset({3}), election=Election.UNCLEAN)
    assert change(partition(isr=(1,), leader=-1), (1,), by).leader == -1


def test_an_isr_member_that_may_have_lost_data_is_not_elected() -> None:
    by = replace(rules(1), unclean_shutdown=frozenset({1}))
    assert change(partition((1, 2), leader=2), (1, 2), by).leader == -1


def test_eligibility_beside_a_leader_that_could_commit_alone_ends() -> None:
    # min.insync.replicas was 2 when replica 2 became eligible.
    after = change(partition((1, 2), isr=(1,), elr=(2,)), (), rules(2))
    assert (after.leader, after.elr) == (-1, (1,))


def test_the_next_last_known_leader_is_elected_if_the_first_has_an_empty_directory() -> None:
    before = partition(isr=(), leader=-1, last_known_elr=(3, 2))
    after = change(before, (), replace(rules(2, 3), emptied=frozenset({3})))
    assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), 1)


def test_an_unclean_election_prefers_last_known_replicas() -> None:
    before = partition(isr=(1,), leader=-1, last_known_elr=(3,))
    after = change(before, (1,), replace(rules(2, 3), election=Election.UNCLEAN))
    assert after.leader == 3


def test_without_the_elr_feature_replicas_that_die_together_stay_in_the_isr() -> None:
    by = replace(rules(2, 3, suspected=(2, 3)), elr_enabled=False)
    after = change(partition(), (2, 3), by)
    assert (after.leader, after.isr) == (-1, (1, 2, 3))


def test_any_live_replica_is_elected_with_unclean_election_enabled() -> None:
    before = partition((1, 2), isr=(1,), leader=-1)
    assert change(before, (1,), rules(2)).leader == -1
    after = change(before, (1,), replace(rules(2), election=Election.UNCLEAN))
    assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), 1)


def test_without_the_elr_feature_the_isr_is_never_empty() -> None:
    after = change(partition((1,)), (), replace(rules(), elr_enabled=False))
    assert (after.isr, after.leader, after.elr) == ((1,), -1, ())


@pytest.mark.parametrize(("level", "version"), [(33, 2), (17, 1), (7, 0)])
def test_the_record_has_the_version_of_the_metadata_version(level: int, version: int) -> None:
    by = replace(rules(1), metadata_version=level, elr_enabled=False)
    made = changed_partition(0, TOPIC_ID, partition(), (1,), by)
    assert made is not None
    assert made[1] == version
