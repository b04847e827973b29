"""What `barnabas start` sets for the whole process."""

from __future__ import annotations

import gc

from barnabas.cli.start.start_broker import GC_THRESHOLDS


def test_objects_of_a_large_request_are_collected_in_small_parts() -> None:
    """Only a full collection, which is rare, scans more than 200,000 objects."""
    looked_at: list[int] = []
    full: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase != "start":
            return
        if info["generation"] == 2:
            full.append(phase)
        else:
            looked_at.append(
                sum(len(gc.get_objects(each)) for each in range(info["generation"] + 1))
            )

    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.callbacks.append(note)
    try:
        request = [[number] for number in range(700_000)]
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)
        gc.unfreeze()
    assert len(request) == 700_000
    assert len(looked_at) > 10
    # Four young generations at most: three were counted, and the one that is full now.
    assert max(looked_at) < 4 * 50_000 + 10_000
    assert full == []
