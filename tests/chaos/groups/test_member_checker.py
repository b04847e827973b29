"""The checker of consumer groups finds each kind of fault in a constructed history."""

from __future__ import annotations

import pytest

from chaos.groups.member_checker import KINDS, check_consumer_group
from chaos.groups.member_history import Heartbeat, MemberHistory, Probe
from storms.history import NS_PER_S, Event

SESSION_S = 2
NUMBERS = {"partition": 0, "generation": 1}


def event(at_s: float, member: str, kind: str, **numbers: int) -> Event:
    return Event(round(at_s * NS_PER_S), member, kind, **{**NUMBERS, **numbers})


def history(*events: Event, end: int = 0) -> MemberHistory:
    """One partition, whose group has committed all of it."""
    return MemberHistory(SESSION_S * NS_PER_S, list(events), ends={0: end}, seen={0: [end]})


def heartbeats_of(found: MemberHistory, member: str, *times_s: float) -> MemberHistory:
    found.heartbeats += [Heartbeat(member, round(at * NS_PER_S), True) for at in times_s]
    return found


def probed(kind: str, error_code: int) -> MemberHistory:
    found = history()
    found.probes.append(Probe(kind, error_code, "a"))
    return found


def read(at_s: float, member: str, first: int, end: int, epoch: int = 1) -> Event:
    return event(at_s, member, "processed", first=first, end=end, generation=epoch)


def committed(at_s: float, member: str, end: int) -> Event:
    began_ns = round((at_s - 0.1) * NS_PER_S)
    return event(at_s, member, "committed", end=end, began_ns=began_ns)


def final(**owned: frozenset[int]) -> MemberHistory:
    found = history()
    found.final = owned
    return found


OWNER = event(1, "a", "assigned")
FAULTS = {
    "unprocessed": history(OWNER, end=5),
    "shared": history(OWNER, read(2, "a", 0, 5), read(3, "b", 0, 5), end=5),
    "repeated": history(
        OWNER,
        read(2, "a", 0, 5),
        committed(3, "a", 5),
        event(4, "a", "revoked"),
        event(5, "b", "assigned"),
        read(6, "b", 0, 5, 2),
        end=5,
    ),
    "returned": history(
        OWNER, read(2, "a", 0, 5), committed(3, "a", 5), committed(4, "a", 2), end=5
    ),
    "disordered": history(OWNER, read(2, "a", 0, 5), read(3, "a", 2, 5), end=5),
    "owned twice": heartbeats_of(history(OWNER, event(2, "b", "assigned")), "a", 1.5),
    "expelled": heartbeats_of(history(OWNER, event(2, "a", "lost")), "a", 1.5),
    "unassigned": final(a=frozenset()),
    **{
        kind: probed(kind, 0)
        for kind in ("stale commit", "commit after leave", "zombie served", "doubled instance")
    },
}


def test_there_is_a_fault_of_each_kind() -> None:
    assert set(FAULTS) == set(KINDS)


@pytest.mark.parametrize("kind", FAULTS)
def test_each_kind_of_fault_is_found(kind: str) -> None:
    assert kind in check_consumer_group(FAULTS[kind]).counts


def test_nothing_is_found_in_a_correct_history() -> None:
    found = history(
        OWNER,
        read(2, "a", 0, 5),
        committed(3, "a", 5),
        event(4, "a", "revoked"),
        event(5, "b", "assigned", generation=2),
        read(6, "b", 5, 9, 2),
        end=9,
    )
    found.final = {"b": frozenset({0})}
    found.probes.append(Probe("zombie served", 25, "a"))
    verdict = check_consumer_group(heartbeats_of(found, "a", 1, 2, 3, 4))
    assert verdict.is_clean, verdict


def test_a_silent_member_loses_its_partitions_to_another_one() -> None:
    found = history(OWNER, event(4, "b", "assigned"), event(5, "a", "lost"))
    assert check_consumer_group(heartbeats_of(found, "a", 1.5)).is_clean


def test_the_partitions_of_a_dead_member_are_free() -> None:
    found = history(OWNER, event(2, "b", "assigned"))
    found.deaths["a"] = round(1.8 * NS_PER_S)
    assert check_consumer_group(heartbeats_of(found, "a", 1.5)).is_clean


def test_a_coordinator_that_is_cut_off_may_serve_its_old_members() -> None:
    found = heartbeats_of(history(OWNER, event(2, "b", "assigned")), "a", 1.5)
    found.isolations.append((0, 3 * NS_PER_S))
    assert check_consumer_group(found).is_clean


def test_static_members_follow_each_other_in_one_epoch() -> None:
    found = history(
        OWNER,
        read(2, "a", 0, 5),
        committed(3, "a", 5),
        event(4, "a", "revoked"),
        event(5, "b", "assigned"),
        read(6, "b", 5, 9),
        end=9,
    )
    found.instances = {"a": "i", "b": "i"}
    assert check_consumer_group(found).is_clean
