"""Limits of the requests of members. Kafka has none, but its event loops are threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.refusal import RefusalError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection

# Topic names of a subscription, and topics of which a member owns partitions. A heartbeat with so
# many takes about 15 ms. A regular expression may match more topics.
TOPIC_NAMES_MAX = 10_000
# Total length of the topic names of a subscription: enough for TOPIC_NAMES_MAX valid names.
NAMES_LENGTH_MAX = TOPIC_NAMES_MAX * 249


def check_topic_names(names: Collection[str] | None) -> None:
    """Check the number and length of topic names in a subscription. Raises RefusalError."""
    if names is not None and len(names) > TOPIC_NAMES_MAX:
        message = f"A member may subscribe to at most {TOPIC_NAMES_MAX} topics by name."
        raise RefusalError(ErrorCode.INVALID_REQUEST, message)
    if names is not None and sum(map(len, names)) > NAMES_LENGTH_MAX:
        message = f"Topic names of a member may have {NAMES_LENGTH_MAX} characters in total."
        raise RefusalError(ErrorCode.INVALID_REQUEST, message)
