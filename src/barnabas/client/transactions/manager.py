"""The transactions of one producer: their states, and one coordinator request at a time.

Source: KIP-98; KIP-360 (higher epoch after failed batches), KIP-447 (offsets with the group's
generation), KIP-588 (an abort finds out whether the producer is fenced), KIP-890 (version 2: a
produce request adds its partitions, and each end of a transaction raises the epoch), KIP-939 (a
prepared transaction outlives its producer, and a successor ends it).

`advance` sends the next request, if there is one; every change of state calls it. An operation of
the user (initialize, send offsets, prepare, commit, abort, detach) ends with its callback and has
no timeout here.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.client.connections.lookups import TRANSACTION, Coordinators
from barnabas.client.errors import (
    ClientConfigError,
    ClientError,
    IllegalTransactionStateError,
    TransactionAbortedError,
    broker_error,
)
from barnabas.client.transactions import requests
from barnabas.client.transactions.requests import OffsetsToSend, ProducerIdAndEpoch, TwoPhases
from barnabas.client.transactions.state import (
    OpenTransaction,
    PreparedTransaction,
    Reaction,
    TransactionState,
    check_transition,
    fenced,
    most_severe,
    reaction_to,
    reaction_to_failed_batch,
)
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.transactions import (
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    InitProducerIdResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.client.config import ClientConfig
    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.group.group_offsets import CommittedOffset
    from barnabas.client.group.membership import GroupGeneration
    from barnabas.client.retries import OnDone
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.protocol.schema import Message

__all__ = ["BatchesOfTransaction", "TransactionManager"]

_S = TransactionState
_FEATURE = "transaction.version"
_V2 = 2
# The previous transaction usually ends within milliseconds, so the retry comes soon.
_CONCURRENT_RETRY_MS = 20.0
# The coordinator or a partition leader has forgotten the producer id.
_LOST = frozenset({ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
_SENDS = frozenset({_S.IN_TRANSACTION, _S.PREPARING, _S.COMMITTING, _S.DETACHING})
# States that end when all batches and offsets are delivered, and the states that follow.
_AFTER_DELIVERY = {_S.PREPARING: _S.PREPARED, _S.DETACHING: _S.DETACHED}


class BatchesOfTransaction(Protocol):
    """The parts that the manager needs of the producer's sender."""

    @property
    def has_incomplete(self) -> bool:
        """Whether batches are pending or in flight."""
        ...

    def pump(self) -> None:
        """Send all batches that can be sent now."""
        ...

    def send_all(self) -> None:
        """Send all pending batches, including open ones."""
        ...

    def give_up_queued(self, error: ClientError) -> None:
        """Fail all batches that are not in flight."""
        ...

    def restart_sequences(self) -> None:
        """Restart the sequences at 0 for a new epoch."""
        ...


class TransactionManager:
    """The transactions of a producer with a `transactional.id`."""

    def __init__(
        self,
        cluster: Cluster,
        groups: Coordinators,
        config: ClientConfig,
        batches: BatchesOfTransaction,
    ) -> None:
        assert config.transactional_id is not None
        self._cluster = cluster
        self._groups = groups
        self._coordinators = Coordinators(cluster, TRANSACTION)
        self._config = config
        self._batches = batches
        self.transactional_id: str = config.transactional_id
        self.state = _S.UNINITIALIZED
        # Set in the states ABORTABLE_ERROR and FATAL_ERROR: the error that led there.
        self.error: ClientError | None = None
        self.identity = ProducerIdAndEpoch()
        # The prepared transaction, in the state PREPARED and while it is ended.
        self.prepared: PreparedTransaction | None = None
        self._two_phases = TwoPhases(config.transaction_two_phase_commit_enable)
        # Whether the transaction uses version 2 (KIP-890); decided when it begins.
        self.is_v2 = False
        # Partitions that the coordinator has added, and partitions that are still to be added.
        self._added: set[TopicPartition] = set()
        self._new: dict[TopicPartition, None] = {}
        self._offsets: list[OffsetsToSend] = []
        # Whether the coordinator may have an open transaction of this producer.
        self._started = False
        # Whether a batch with a sequence failed: the next transaction needs a higher epoch.
        self._bump_wanted = False
        # Whether the coordinator has forgotten the producer id: no EndTxn request is possible.
        self._mapping_lost = False
        # Callback of the pending initialize, prepare, commit, abort or detach.
        self._waiting: OnDone[bool] | None = None
        # Whether a request or a retry backoff is pending.
        self._busy = False
        # Delays the next attempt of the pending request.
        self._request_retry = self._cluster.retry_timer()

    # Interface for the sender

    @property
    def producer_id(self) -> int:
        """Producer id of new batches."""
        return self.identity.producer_id

    @property
    def producer_epoch(self) -> int:
        """Producer epoch of new batches."""
        return self.identity.producer_epoch

    @property
    def may_send(self) -> bool:
        """Whether batches may be sent."""
        return self.state in _SENDS

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open and neither commit nor abort was called."""
        return self.state in (_S.IN_TRANSACTION, _S.ABORTABLE_ERROR)

    def may_send_to(self, tp: TopicPartition) -> bool:
        """Whether batches of a partition may be sent now; if not, schedule adding the partition."""
        if tp in self._added:
            return True
        if self.is_v2:
            # The produce request adds the partition (KIP-890).
            self._added.add(tp)
            self._started = True
            return True
        if tp not in self._new:
            self._new[tp] = None
            self._cluster.runtime.timer.call_soon(self.advance)
        return False

    def on_batch_failed(self, error: ClientError, *, has_sequence: bool) -> None:
        """Handle a failed batch.

        Args:
            error: why it failed.
            has_sequence: whether the batch was sent, so that its failure leaves a sequence gap.
        """
        self._bump_wanted |= has_sequence
        if error.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            self._mapping_lost = True
        if error is self.error:
            # The failure of the transaction is what failed this batch.
            return
        if reaction_to_failed_batch(error) is Reaction.FATAL:
            self._fail_fatally(error)
        elif self.state in _SENDS:
            self._fail_abortably(error)

    def check_sending(self) -> None:
        """Raise an error unless records may be sent.

        Raises:
            IllegalTransactionStateError: no transaction is open.
            ClientError: the transaction failed with this error and must be aborted.
        """
        if self.state is not _S.IN_TRANSACTION:
            self._refuse("send")

    # Operations of the user

    def initialize(self, on_done: OnDone[bool], *, keeps_prepared: bool = False) -> None:
        """Register the id with the coordinator, which fences other producers with this id.

        Args:
            on_done: called once.
            keeps_prepared: whether an open transaction of the id becomes the prepared transaction
                of this producer, instead of being aborted (KIP-939).
        """
        if self.state is not _S.UNINITIALIZED:
            self._refuse("init_transactions")
        self._waiting = on_done
        self._two_phases = replace(self._two_phases, keeps_prepared=keeps_prepared)
        self._enter_state(_S.INITIALIZING)
        self.advance()

    def begin(self) -> None:
        """Begin a transaction.

        Raises:
            IllegalTransactionStateError: the producer is not initialized, or a transaction is open.
        """
        if self.state is not _S.READY:
            self._refuse("begin_transaction")
        self.is_v2 = self._cluster.feature_level(_FEATURE) >= _V2
        self._enter_state(_S.IN_TRANSACTION)

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        group: GroupGeneration,
        on_done: OnDone[bool],
    ) -> None:
        """Commit the group's offsets as part of the transaction."""
        self.check_sending()
        if not offsets:
            on_done(True, None)
            return
        self._offsets.append(OffsetsToSend(dict(offsets), group, on_done))
        self.advance()

    def prepare(self, on_done: OnDone[bool]) -> None:
        """Send all pending batches and offsets; only commit and abort are allowed afterwards."""
        if not self._two_phases.is_enabled:
            raise ClientConfigError(
                "prepare_transaction needs transaction.two.phase.commit.enable=true"
            )
        if self.state is not _S.IN_TRANSACTION:
            self._refuse("prepare_transaction")
        self._waiting = on_done
        self._enter_state(_S.PREPARING)
        self._batches.send_all()
        self.advance()

    def complete(self, stored: PreparedTransaction, on_done: OnDone[bool]) -> None:
        """Commit the prepared transaction if it is `stored`, else abort it."""
        if self.state is not _S.PREPARED:
            self._refuse("complete_transaction")
        if stored == self.prepared:
            self.commit(on_done)
        else:
            self.abort(on_done)

    def commit(self, on_done: OnDone[bool]) -> None:
        """Send all pending batches, then commit."""
        if self.state not in (_S.IN_TRANSACTION, _S.PREPARED):
            self._refuse("commit_transaction")
        self._waiting = on_done
        self._enter_state(_S.COMMITTING)
        self._batches.send_all()
        self.advance()

    def abort(self, on_done: OnDone[bool]) -> None:
        """Abort; pending batches fail with `TransactionAbortedError`."""
        if self.state not in (_S.IN_TRANSACTION, _S.PREPARED, _S.ABORTABLE_ERROR):
            self._refuse("abort_transaction")
        self._waiting = on_done
        self._enter_state(_S.ABORTING)
        self._new.clear()
        aborted = TransactionAbortedError("the transaction is aborted")
        self._fail_offsets(aborted)
        self._batches.give_up_queued(aborted)
        self.advance()

    def detach(self, on_done: OnDone[bool]) -> None:
        """Send all pending batches and offsets, then leave the open transaction as it is."""
        if self.state is not _S.IN_TRANSACTION:
            self._refuse("detach_transaction")
        self._waiting = on_done
        self._enter_state(_S.DETACHING)
        self._batches.send_all()
        self.advance()

    @property
    def detached(self) -> OpenTransaction | None:
        """The transaction that was detached; None if nothing was sent in it."""
        assert self.state is _S.DETACHED, self.state
        return (
            OpenTransaction(self.transactional_id, *self.identity, is_v2=self.is_v2)
            if self._started
            else None
        )

    def _refuse(self, call: str) -> None:
        if self.error is not None:
            raise self.error
        raise IllegalTransactionStateError(
            f"{call}: the producer is {self.state.value}; the order is init_transactions once, "
            f"then begin_transaction, send, commit_transaction or abort_transaction"
        )

    # The next request

    def advance(self) -> None:
        """Send the next request, if there is one and no other is pending."""
        if self._busy:
            return
        if self.state is _S.INITIALIZING:
            self._initialize()
        elif self.state in _SENDS and self._new:
            self._add_partitions()
        elif self.state in _SENDS and self._offsets:
            self._send_offsets()
        elif self.state in (_S.COMMITTING, _S.ABORTING) and not self._batches.has_incomplete:
            if self._started and not self._mapping_lost:
                self._end()
            else:
                self._ended()
        elif self.state in _AFTER_DELIVERY and not self._batches.has_incomplete:
            if self.state is _S.PREPARING:
                self.prepared = PreparedTransaction(*self.identity)
            self._enter_state(_AFTER_DELIVERY[self.state])
            self._end_call(None)

    def _initialize(self) -> None:
        two_phases = self._two_phases

        def build(version: int) -> Message:
            timeout_ms = self._config.transaction_timeout_ms
            return requests.initialize(
                self.transactional_id, timeout_ms, self.identity, version, two_phases
            )

        def on_done(response: Message | None, error: ClientError | None) -> None:
            if response is not None:
                assert isinstance(response, InitProducerIdResponse)
                is_valid = min(response.producer_id, response.producer_epoch) >= 0
                if not response.error_code and is_valid:
                    self._begin_epoch(response.producer_id, response.producer_epoch)
                    self._bump_wanted = self._mapping_lost = False
                    if two_phases.keeps_prepared and response.ongoing_txn_producer_id >= 0:
                        ongoing = response.ongoing_txn_producer_id
                        self._keep(
                            PreparedTransaction(ongoing, response.ongoing_txn_producer_epoch)
                        )
                    else:
                        self._become_ready()
                    return
                code = response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR
                error = broker_error(code, f"transactional.id={self.transactional_id}")
            self._on_error(error)

        self._call(ApiKey.INIT_PRODUCER_ID, build, on_done, max_version=two_phases.max_version)

    def _keep(self, prepared: PreparedTransaction) -> None:
        """Take over the prepared transaction of a predecessor."""
        self._busy = False
        self._request_retry.reset()
        self.prepared = prepared
        self.is_v2 = self._cluster.feature_level(_FEATURE) >= _V2
        self._started = True
        self._enter_state(_S.PREPARED)
        self._end_call(None)

    def _add_partitions(self) -> None:
        requested = list(self._new)

        def build(_version: int) -> Message:
            return requests.add_partitions(self.transactional_id, self.identity, requested)

        def on_done(response: Message | None, error: ClientError | None) -> None:
            if response is not None:
                assert isinstance(response, AddPartitionsToTxnResponse)
                results = requests.read_added_partitions(response)
                error = most_severe(results.values())
                if error is None and not results.keys() >= set(requested):
                    code = ErrorCode.UNKNOWN_SERVER_ERROR
                    error = broker_error(
                        code,
                        f"add {requested[0]} to the transaction",
                        "missing in the response",
                    )
                if error is None:
                    self._added.update(requested)
                    for tp in requested:
                        self._new.pop(tp, None)
                    self._next()
                    self._batches.pump()
                    return
            self._on_error(error)

        # Set before the response: without a response the outcome is unknown.
        self._started = True
        self._call(
            ApiKey.ADD_PARTITIONS_TO_TXN, build, on_done, max_version=requests.ADD_PARTITIONS_MAX
        )

    def _send_offsets(self) -> None:
        sending = self._offsets[0]
        self._started = True

        def on_done(error: ClientError | None) -> None:
            if error is not None:
                self._on_error(error, group=sending.group.group_id)
            elif sending.is_done:
                if self._offsets and self._offsets[0] is sending:
                    self._offsets.pop(0)
                self._next()
                sending.on_done(True, None)
            else:
                self._next()

        def on_added(response: Any, error: ClientError | None) -> None:
            on_done(error if response is None else sending.on_added(response))

        def on_committed(response: Any, error: ClientError | None) -> None:
            on_done(error if response is None else sending.on_committed(response))

        group = sending.group
        if not self.is_v2 and not sending.is_added:
            adding = requests.add_offsets(self.transactional_id, self.identity, group.group_id)
            self._call(ApiKey.ADD_OFFSETS_TO_TXN, lambda _version: adding, on_added)
            return
        self._busy = True
        request = requests.commit_offsets(self.transactional_id, self.identity, group, sending.left)
        bound = None if self.is_v2 else requests.OFFSETS_MAX_BEFORE_V2
        self._groups.call(
            group.group_id,
            ApiKey.TXN_OFFSET_COMMIT,
            lambda _version: request,
            on_committed,
            max_version=bound,
        )

    def _end(self) -> None:
        committed = self.state is _S.COMMITTING

        def build(_version: int) -> Message:
            return requests.end(self.transactional_id, self.identity, committed=committed)

        def on_done(response: Message | None, error: ClientError | None) -> None:
            if response is not None:
                assert isinstance(response, EndTxnResponse)
                if not response.error_code:
                    if self.is_v2 and response.producer_id >= 0:
                        self._begin_epoch(response.producer_id, response.producer_epoch)
                        self._bump_wanted = False
                    self._ended()
                    return
                what = "commit" if committed else "abort"
                error = broker_error(
                    response.error_code, f"{what} of transactional.id={self.transactional_id}"
                )
            self._on_error(error, is_end=True)

        bound = None if self.is_v2 else requests.END_MAX_BEFORE_V2
        self._call(ApiKey.END_TXN, build, on_done, max_version=bound)

    def _ended(self) -> None:
        """Reset the state after a transaction; first raise the epoch if a batch failed."""
        self._added.clear()
        self._new.clear()
        self._started = False
        self.prepared = None
        # Only the first InitProducerId keeps a transaction; later ones only raise the epoch.
        self._two_phases = replace(self._two_phases, keeps_prepared=False)
        if self.state is _S.ABORTING and self._bump_wanted:
            self._busy = False
            self.error = None
            self._enter_state(_S.INITIALIZING)
            self.advance()
        else:
            self._become_ready()

    def _become_ready(self) -> None:
        self._busy = False
        self._request_retry.reset()
        self.error = None
        self._enter_state(_S.READY)
        self._end_call(None)

    def _begin_epoch(self, producer_id: int, producer_epoch: int) -> None:
        self.identity = ProducerIdAndEpoch(producer_id, producer_epoch)
        self._batches.restart_sequences()

    # Requests and their errors

    def _call(
        self,
        api_key: ApiKey,
        build: Callable[[int], Message],
        on_done: OnDone[Message],
        *,
        max_version: int | None = None,
    ) -> None:
        self._busy = True
        self._coordinators.call(self.transactional_id, api_key, build, on_done, None, max_version)

    def _next(self) -> None:
        self._busy = False
        self._request_retry.reset()
        self.advance()

    def _on_error(
        self, error: ClientError | None, group: str | None = None, *, is_end: bool = False
    ) -> None:
        """Handle the error of a request: retry, fail the transaction, or fail the producer.

        Args:
            error: why the request failed.
            group: group whose coordinator responded, None for the transaction coordinator.
            is_end: whether the request was the commit or the abort.
        """
        assert error is not None
        self._busy = False
        reaction = reaction_to(error)
        if self.state in (_S.FATAL_ERROR, _S.ABORTABLE_ERROR) and reaction is not Reaction.FATAL:
            return
        if reaction in (Reaction.MOVED, Reaction.RETRY):
            self._retry(error, group, moved=reaction is Reaction.MOVED)
            return
        if error.error_code in _LOST:
            self._bump_wanted = True
            self._mapping_lost |= error.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if reaction is Reaction.FATAL or self.state is _S.INITIALIZING:
            self._fail_fatally(error)
        elif self.state is not _S.ABORTING:
            self._fail_abortably(error)
        elif not is_end:
            # The failed request no longer matters: continue with the abort.
            self._next()
        elif error.error_code in _LOST:
            # The coordinator has no transaction to abort.
            self._ended()
        else:
            self._fail_fatally(error)

    def _retry(self, error: ClientError, group: str | None, *, moved: bool) -> None:
        if moved:
            if group is not None:
                self._groups.forget(group)
            else:
                self._coordinators.forget(self.transactional_id)
        self._busy = True
        is_concurrent = error.error_code == ErrorCode.CONCURRENT_TRANSACTIONS

        def again() -> None:
            self._busy = False
            self.advance()

        self._request_retry.retry(again, _CONCURRENT_RETRY_MS if is_concurrent else inf)

    def _fail_abortably(self, error: ClientError) -> None:
        self._enter_state(_S.ABORTABLE_ERROR)
        self.error = error
        self._new.clear()
        self._fail_offsets(error)
        self._batches.give_up_queued(error)
        self._end_call(error)

    def _fail_fatally(self, error: ClientError) -> None:
        if self.state is _S.FATAL_ERROR:
            return
        self._enter_state(_S.FATAL_ERROR)
        self.error = fenced(error, self.transactional_id)
        self._new.clear()
        self._fail_offsets(self.error)
        self._batches.give_up_queued(self.error)
        self._end_call(self.error)

    def _fail_offsets(self, error: ClientError) -> None:
        failed, self._offsets = self._offsets, []
        for each in failed:
            each.on_done(None, error)

    def _enter_state(self, state: TransactionState) -> None:
        check_transition(self.state, state)
        self.state = state

    def _end_call(self, error: ClientError | None) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting(True if error is None else None, error)
