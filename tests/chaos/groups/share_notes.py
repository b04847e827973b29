"""Recorder of one share consumer: deliveries, and acknowledgements with their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from barnabas.client.errors import BrokerError, ClientError
from barnabas.client.share.acknowledgements import AcknowledgeType
from barnabas.client.share.acquired_records import ShareRecord
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from chaos.groups.share_history import FOREVER, Acknowledgement, Answer, Delivery, ShareHistory

# With these errors an acknowledgement has no effect.
_REFUSALS = frozenset(
    {
        ErrorCode.INVALID_RECORD_STATE,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    }
)


class ShareNotes:
    """Records the operations of one member.

    Args:
        member: its name in the history.
        history: receives deliveries and acknowledgements.
        code_of: returns the code of a record's value.
        now: returns the time of the history, seconds.
    """

    def __init__(
        self,
        member: str,
        history: ShareHistory,
        code_of: Callable[[bytes], int],
        now: Callable[[], float],
    ) -> None:
        self._member = member
        self._history = history
        self._code_of = code_of
        self._now = now
        # When the last fetch of each broker was sent.
        self._sent: dict[int, float] = {}
        # When the first fetch of an offset with a delivery count was sent, and when the last one
        # had arrived: two leaders may deliver a record with the same count.
        self._acquired: dict[tuple[int, int, int], tuple[float, float]] = {}
        # Deliveries to this member, by partition and offset.
        self._deliveries: dict[tuple[int, int], Delivery] = {}
        self.errors: list[ClientError] = []

    def watch(self, fetcher: Any) -> None:
        """Note when the fetcher of the consumer sends its requests, and what they acquire."""
        send_fetch, on_fetched = fetcher._send_fetch, fetcher._on_fetched

        def watched_send(session: Any, wanted: Any) -> None:
            self._sent[session.node_id] = self._now()
            send_fetch(session, wanted)

        def watched_fetched(session: Any, groups: Any, response: Any) -> None:
            sent, arrived = self._sent[session.node_id], self._now()
            for topic in response.responses:
                for data in topic.partitions:
                    for each in data.acquired_records:
                        for offset in range(each.first_offset, each.last_offset + 1):
                            key = (data.partition_index, offset, each.delivery_count)
                            first, _ = self._acquired.get(key, (sent, arrived))
                            self._acquired[key] = (first, arrived)
            on_fetched(session, groups, response)

        fetcher._send_fetch, fetcher._on_fetched = watched_send, watched_fetched

    def note(self, records: Iterable[ShareRecord]) -> None:
        """Record the records of a poll."""
        for record in records:
            place = (record.partition, record.offset)
            known = self._deliveries.get(place)
            is_same = known is not None and known.count == record.delivery_count
            if known is not None and is_same and _is_renewed(known):
                continue
            after, at = self._acquired[(*place, record.delivery_count)]
            delivery = Delivery(
                self._member,
                *place,
                self._code_of(record.value),
                record.delivery_count,
                after,
                at,
            )
            self._deliveries[place] = delivery
            self._history.deliveries.append(delivery)

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        """Note an acknowledgement that the user has made."""
        delivery = self._deliveries[record.partition, record.offset]
        delivery.acknowledgements.append(Acknowledgement(kind, self._now()))

    def on_results(
        self, offsets: Mapping[TopicPartition, frozenset[int]], error: ClientError | None
    ) -> None:
        """Record results. This is the consumer's acknowledgement callback."""
        for tp, found in offsets.items():
            for offset in found:
                ack = _pending(self._deliveries.get((tp.partition, offset)))
                if ack is not None:
                    ack.ended, ack.answer = self._now(), _answer(error)
        if error is not None:
            self.errors.append(error)

    def end(self) -> None:
        """Note that the member ends or loses its sessions: its locks end too."""
        now = self._now()
        for delivery in self._deliveries.values():
            delivery.ended = min(delivery.ended, now)


def _pending(delivery: Delivery | None) -> Acknowledgement | None:
    acks = [] if delivery is None else delivery.acknowledgements
    return next((ack for ack in acks if ack.ended == FOREVER), None)


def _is_renewed(delivery: Delivery) -> bool:
    last = delivery.acknowledgements[-1:]
    return (
        bool(last) and last[0].kind is AcknowledgeType.RENEW and (last[0].answer is Answer.ACCEPTED)
    )


def _answer(error: ClientError | None) -> Answer:
    if error is None:
        return Answer.ACCEPTED
    is_refused = isinstance(error, BrokerError) and error.error_code in _REFUSALS
    return Answer.REFUSED if is_refused else Answer.UNKNOWN
