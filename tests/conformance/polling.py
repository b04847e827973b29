"""Poll several consumers in turn until a condition holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    import barnabas

POLL_S = 0.05


def poll_until(
    condition: Callable[[], object],
    *consumers: barnabas.Consumer,
    take: Callable[[Any], object],
) -> None:
    """Poll the consumers in turn until the condition holds.

    Args:
        take: receives each record.
    """

    seen: list[bytes] = []

    def holds() -> bool:
        if condition():
            return True
        for consumer in consumers:
            for record in consumer.poll(POLL_S):
                seen.append(record.value)
                take(record)
        return False

    eventually(holds, lambda: ([each.assignment() for each in consumers], seen), pause_s=0)


def read(count: int, *consumers: barnabas.Consumer) -> list[bytes]:
    """Poll in turn until `count` records have arrived, and return their values."""
    values: list[bytes] = []
    poll_until(
        lambda: len(values) >= count, *consumers, take=lambda record: values.append(record.value)
    )
    return values
