"""A notice that a broker auto-created the topic, because its name may be misspelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.printable import echo
from barnabas.client.errors import AdminResultsError, UnknownTopicError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.client.facade import Client

__all__ = ["CreationNotice"]


class CreationNotice:
    """Checks whether the topic exists before the first record, and reports its creation."""

    def __init__(self, client: Client, topic: str) -> None:
        self._client = client
        self._topic = topic
        # Whether the topic was missing; None before the first record, False after the notice.
        self._was_missing: bool | None = None

    def before_send(self) -> None:
        """Check once whether the topic exists; a topic that the broker hides counts as existing.

        Raises:
            ClientError: No broker answered.
        """
        if self._was_missing is not None:
            return
        self._was_missing = False
        try:
            self._client.admin.describe_topics([self._topic])
        except AdminResultsError as error:
            found = error.results[self._topic]
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            is_missing = isinstance(found, UnknownTopicError) or found.error_code == code
            self._was_missing = is_missing

    def after_send(self) -> None:
        """Print on standard error, once, that the topic was created."""
        if self._was_missing:
            self._was_missing = False
            echo(f"created topic {self._topic}", err=True)
