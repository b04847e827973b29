"""Limits of the requests of members. Kafka has none, but its event loops are threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.refusal import RefusalError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sized

# Topic names of a subscription, and topics of which a member owns partitions. A heartbeat with so
# many takes about 15 ms. A regular expression may match more topics.
TOPIC_NAMES_MAX = 10_000


def check_topic_names(names: Sized | None) -> None:
    """Check the number of topic names in a subscription. Raises RefusalError."""
    if names is not None and len(names) > TOPIC_NAMES_MAX:
        message = f"A member may subscribe to at most {TOPIC_NAMES_MAX} topics by name."
        raise RefusalError(ErrorCode.INVALID_REQUEST, message)
