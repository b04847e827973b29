"""Facts of topics: their age and their number are limited, and each user has the own ones."""

from __future__ import annotations

from barnabas.console.access.users import ActingUser, acting_user
from barnabas.console.history.topic_facts import TopicFact, TopicFacts
from unit.storage.storage_fixtures import ManualClock

FACT = TopicFact(3, "compact")


def test_facts_are_used_for_a_minute() -> None:
    clock = ManualClock()
    facts = TopicFacts(clock)
    facts.keep({"a": FACT})
    clock.now_ms = 59_000
    facts.keep({"b": FACT})
    assert facts.of(["a", "b", "absent"]) == {"a": FACT, "b": FACT}
    clock.now_ms = 61_000
    assert facts.of(["a", "b", "absent"]) == {"b": FACT}


def test_the_oldest_facts_are_forgotten_if_there_are_too_many() -> None:
    facts = TopicFacts(ManualClock())
    names = [f"t{number}" for number in range(50_000)]
    facts.keep(dict.fromkeys(names, FACT))
    facts.keep({"t0": FACT, "new": FACT})
    assert facts.of(["t0", "t1", "t2", "new"]).keys() == {"t0", "t2", "new"}


def test_a_user_does_not_see_the_facts_that_another_user_has_read() -> None:
    facts = TopicFacts(ManualClock())
    facts.keep({"a": FACT})
    token = acting_user.set(ActingUser("eve", ()))
    try:
        assert facts.of(["a"]) == {}
    finally:
        acting_user.reset(token)
    assert facts.of(["a"]) == {"a": FACT}
