"""The reason for subscriptions to topics that do not exist, for groups of all types but streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.advice import Advice
from barnabas.cli.why.reasons.reason import Reason, wrong

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["missing_topics"]


def missing_topics(topics: Iterable[str]) -> list[Reason]:
    """Return a reason for each of these topics."""
    return [
        wrong(
            "topic-missing",
            f"a member subscribes to {topic}, but this topic does not exist",
            f"`{Advice.CREATE_TOPIC.text(topic=topic)}`, or check the name",
        )
        for topic in sorted(topics)
    ]
