"""EndTxn (key 26, v0-5): commit or abort a transaction (v5 raises the epoch, KIP-890)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.transaction.decisions import Ending
from barnabas.coordinator.transaction.producer import Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.transactions import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from barnabas.coordinator.transaction.transaction_metadata import TransactionMetadata
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies

# Clients that send this version use transactions of version 2.
_EPOCH_BUMP_SINCE = 5
_FENCED_SINCE = 2


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that ends transactions."""
    transactions = dependencies.transactions

    def handle_end_txn(context: RequestContext, request: EndTxnRequest) -> None:
        version = context.version
        bumps = version >= _EPOCH_BUMP_SINCE

        def on_done(found: TransactionMetadata | ErrorCode) -> None:
            if isinstance(found, ErrorCode):
                context.respond(EndTxnResponse(error_code=client_code(found, version)))
            elif bumps:
                following = found.client_producer
                context.respond(
                    EndTxnResponse(
                        error_code=ErrorCode.NONE,
                        producer_id=following.producer_id,
                        producer_epoch=following.epoch,
                    )
                )
            else:
                context.respond(EndTxnResponse(error_code=ErrorCode.NONE))

        if not request.transactional_id:
            on_done(ErrorCode.INVALID_REQUEST)
            return
        ending = Ending(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            request.committed,
            2 if bumps else 0,
        )
        transactions.end(ending, on_done)

    return handle_end_txn


def client_code(error: ErrorCode, version: int, fenced_since: int = _FENCED_SINCE) -> ErrorCode:
    """Return the error for a client: old versions do not know PRODUCER_FENCED."""
    if error is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
