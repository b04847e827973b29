"""The invariants of the tiered world find rules of the remote tier that were left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.replication.remote.expiration_task import ExpirationTask
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_offsets import LogOffsets
from simulation.tiered_walk import run
from simulation.tiered_world import InvariantError

if TYPE_CHECKING:
    from collections.abc import Callable

    Weaken = Callable[[pytest.MonkeyPatch], dict[str, str]]

# A rule that was left out must be found by one of these seeds.
SEEDS = range(1, 13)
# The rules, with the invariants of which one shows that they are missing.
RULES: dict[str, tuple[Weaken, frozenset[str]]] = {}


def rule(*invariants: str) -> Callable[[Weaken], Weaken]:
    """Add a function that leaves out a rule, and returns keys of the brokers.

    Args:
        invariants: one of them must be found violated.
    """

    def register(weaken: Weaken) -> Weaken:
        RULES[weaken.__name__.replace("_", " ")] = weaken, frozenset(invariants)
        return weaken

    return register


@rule("TierNeverAhead")
def copies_end_at_the_last_stable_offset(patch: pytest.MonkeyPatch) -> dict[str, str]:
    original = Log.copyable_segments

    def all_closed(log: Log, from_offset: int, _: int, *more: int) -> Any:
        return original(log, from_offset, log.log_end_offset, *more)

    patch.setattr(Log, "copyable_segments", all_closed)
    return {}


@rule("NothingLost", "OneCopyPerRange", "Quiescence")
def local_segments_are_deleted_after_their_copy(patch: pytest.MonkeyPatch) -> dict[str, str]:
    patch.setattr(LogOffsets, "copied_end_offset", property(lambda offsets: offsets.log_end_offset))
    return {}


@rule("NothingLost", "OneCopyPerRange", "Quiescence")
def the_log_start_rises_before_segments_expire(patch: pytest.MonkeyPatch) -> dict[str, str]:
    patch.setattr(ExpirationTask, "_raise_log_start", lambda task, offset: True)
    return {}


@rule("NoOrphanAfterQuiescence", "Quiescence")
def unfinished_copies_are_deleted(patch: pytest.MonkeyPatch) -> dict[str, str]:
    patch.setattr(ExpirationTask, "_delete_useless", lambda *_: iter(()))
    return {}


@pytest.mark.nightly
@pytest.mark.parametrize("name", RULES)
def test_a_rule_that_is_left_out_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weaken, invariants = RULES[name]
    settings = weaken(monkeypatch)
    seen = []
    for seed in SEEDS:
        try:
            run(seed, **settings)
        except InvariantError as error:
            seen.append(str(error).partition(":")[0])
            if seen[-1] in invariants:
                return
    pytest.fail(f"not found; found instead: {seen}")
