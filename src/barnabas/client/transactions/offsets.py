"""Sends offsets as part of a transaction (KIP-447).

The producer first adds the group to the transaction, then commits at the group coordinator. In
transactions of version 2 the group coordinator adds the group itself (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.errors import ClientError, broker_error
from barnabas.client.transactions import requests
from barnabas.client.transactions.reaction import most_severe
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.group.group_offsets import CommittedOffset
    from barnabas.client.group.membership import GroupGeneration
    from barnabas.client.retries import OnDone
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.client.transactions.requests import ProducerIdAndEpoch
    from barnabas.protocol.schema import Message

__all__ = ["OffsetsCall", "OffsetsToSend"]


class OffsetsCall(NamedTuple):
    """The next request for pending offsets."""

    # Whether the request goes to the group coordinator instead of the transaction coordinator.
    to_group: bool
    api_key: ApiKey
    build: Callable[[int], Message]
    on_response: OnDone[Message]
    max_version: int | None


class OffsetsToSend:
    """Offsets of one `send_offsets_to_transaction` call that are not yet accepted."""

    def __init__(
        self,
        offsets: dict[TopicPartition, CommittedOffset],
        group: GroupGeneration,
        on_done: OnDone[bool],
    ) -> None:
        self.group = group
        # Called when all offsets are accepted, or with the error.
        self.on_done = on_done
        # Offsets that the group coordinator has not accepted.
        self._left = offsets
        self._is_added = False

    @property
    def is_done(self) -> bool:
        """Whether the group coordinator has accepted all offsets."""
        return not self._left

    def next_call(
        self,
        transactional_id: str,
        identity: ProducerIdAndEpoch,
        on_done: Callable[[ClientError | None], None],
        *,
        is_v2: bool,
    ) -> OffsetsCall:
        """Return the request to send now; `on_done` receives its error, or None."""
        if not is_v2 and not self._is_added:
            return self._adding(transactional_id, identity, on_done)
        return self._committing(transactional_id, identity, on_done, is_v2=is_v2)

    def _adding(
        self,
        transactional_id: str,
        identity: ProducerIdAndEpoch,
        on_done: Callable[[ClientError | None], None],
    ) -> OffsetsCall:
        def build(_version: int) -> Message:
            return requests.add_offsets(transactional_id, identity, self.group.group_id)

        def on_response(response: Message | None, error: ClientError | None) -> None:
            if response is not None:
                assert isinstance(response, AddOffsetsToTxnResponse)
                if response.error_code:
                    error = broker_error(
                        response.error_code, f"offsets of group {self.group.group_id}"
                    )
                else:
                    self._is_added = True
            on_done(error)

        return OffsetsCall(False, ApiKey.ADD_OFFSETS_TO_TXN, build, on_response, None)

    def _committing(
        self,
        transactional_id: str,
        identity: ProducerIdAndEpoch,
        on_done: Callable[[ClientError | None], None],
        *,
        is_v2: bool,
    ) -> OffsetsCall:
        def build(_version: int) -> Message:
            return requests.commit_offsets(transactional_id, identity, self.group, self._left)

        def on_response(response: Message | None, error: ClientError | None) -> None:
            if response is not None:
                assert isinstance(response, TxnOffsetCommitResponse)
                results = requests.read_committed_offsets(response, self.group.group_id)
                for tp, refused in results.items():
                    if refused is None:
                        self._left.pop(tp, None)
                error = most_severe(results.values())
                if error is None and self._left:
                    # Without this error the request would be repeated forever.
                    subject = f"offsets of group {self.group.group_id}"
                    code = ErrorCode.UNKNOWN_SERVER_ERROR
                    error = broker_error(
                        code, subject, f"{min(self._left)} is missing in the response"
                    )
            on_done(error)

        bound = None if is_v2 else requests.OFFSETS_MAX_BEFORE_V2
        return OffsetsCall(True, ApiKey.TXN_OFFSET_COMMIT, build, on_response, bound)
