"""Tells when a broker created a topic because records were sent to it: it may be misspelt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.printable import echo
from barnabas.client.errors import AdminResultsError, UnknownTopicError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.client.facade import Client

__all__ = ["CreationNotice"]


class CreationNotice:
    """Looks for the topic before its first record is sent, and speaks once it was created."""

    def __init__(self, client: Client, topic: str) -> None:
        self._client = client
        self._topic = topic
        # None before the first record.
        self._was_missing: bool | None = None

    def before_send(self) -> None:
        """Find out whether the topic exists, once; a broker that hides it counts as "exists".

        Raises:
            ClientError: no broker answered.
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
        """Tell on standard error, once, that the topic is a new one."""
        if self._was_missing:
            self._was_missing = False
            echo(f"created topic {self._topic}", err=True)
