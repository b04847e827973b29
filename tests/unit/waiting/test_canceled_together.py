"""Operations of one request that end together when its client is gone."""

from __future__ import annotations

from barnabas.waiting.purgatory import CanceledTogether


class Operation:
    def __init__(self) -> None:
        self.cancels = 0

    def cancel(self) -> None:
        self.cancels += 1


def test_all_operations_are_canceled_once_and_later_ones_at_once() -> None:
    first, second, late = Operation(), Operation(), Operation()
    together = CanceledTogether()
    together.add(first)
    together.add(second)
    assert first.cancels == second.cancels == 0
    together.cancel()
    together.add(late)
    together.cancel()
    assert [each.cancels for each in (first, second, late)] == [1, 1, 1]
