"""The memory for partially received requests, for random sizes, speeds and stalls of clients."""

from __future__ import annotations

from hypothesis import given, strategies as st

from barnabas.network.connection_limits import FREE_BYTES
from unit.network.frame_budgets import Holder, budget_of

STEP_MS = 100
SIZE_MAX = 30 << 20
# The slowest client needs 190 s for the largest request, longer than others may have to wait.
SPEED_MIN = 16 << 10
# Steps in which every connection has ended, or stalls without keeping others waiting.
STEPS_MAX = 5 * SIZE_MAX // SPEED_MIN
# Size of each request, bytes that arrive in a step, and the step from which on no more arrive.
clients = st.lists(
    st.tuples(
        st.integers(1, SIZE_MAX),
        st.integers(SPEED_MIN, 10 << 20),
        st.integers(0, 100) | st.none(),
    ),
    min_size=1,
    max_size=12,
)


@given(st.integers(1, 30), clients)
def test_no_connection_waits_forever(
    megabytes: int, requests: list[tuple[int, int, int | None]]
) -> None:
    world, budget = budget_of(megabytes)
    bytes_max = megabytes << 20
    # No request is larger than the budget: `FrameBudget` requires this.
    left = {
        Holder(budget, min(size, bytes_max)): (speed, stalls) for size, speed, stalls in requests
    }
    largest = max(holder.whole for holder in left)
    for step in range(STEPS_MAX):
        for holder, (speed, stalls) in list(left.items()):
            if holder.dropped:
                del left[holder]
            elif not holder.is_waiting and (stalls is None or step < stalls):
                # As a connection: a buffer grows by the bytes that arrive.
                holder.grow(min(holder.whole, holder.held + speed))
                if holder.held == holder.whole and not holder.is_waiting:
                    holder.finish()
                    del left[holder]
        if not any(stalls is None for _, stalls in left.values()) and not budget.waiting:
            break
        world.run_for(STEP_MS)
    assert budget.waiting == 0
    # One connection may exceed the budget by its request, and small buffers never wait.
    assert budget.held_bytes <= bytes_max + largest + len(left) * FREE_BYTES
    assert all(stalls is not None for _, stalls in left.values())
