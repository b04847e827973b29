"""Changes of delegation tokens, which the active controller makes (KIP-48, KIP-373).

These are CreateDelegationToken (key 38, v0-3), RenewDelegationToken (key 39, v0-2) and
ExpireDelegationToken (key 40, v0-2). Before the controller, brokers check what needs the connection
and the rights of the client, in Kafka's order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.credentials.tokens import (
    owner_of,
    refuse_create_token,
    refuse_creation,
)
from barnabas.controller.result import Refusal
from barnabas.network.principal import USER
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.security import (
    CreateDelegationTokenResponse,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenResponse,
)
from barnabas.protocol.resources import AclOperation, AclResourceType
from barnabas.server.handlers.forwarded import forward_request
from barnabas.server.handlers.tokens.rules import may_use_tokens

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.messages.security import (
        CreateDelegationTokenRequest,
        ExpireDelegationTokenRequest,
        RenewDelegationTokenRequest,
    )
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeDependencies

# First version with an owner in the request, and a requester in the response (KIP-373).
_REQUESTER_SINCE = 3
_NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
_NO_TIME = -1
_RENEWERS_AT_ONCE = 1_000


def create(dependencies: NodeDependencies) -> Handle:
    """Return the handler that creates a token."""

    def handle_create_delegation_token(
        context: RequestContext, request: CreateDelegationTokenRequest
    ) -> CreateDelegationTokenResponse | None:
        def serve(error: ErrorCode | None) -> CreateDelegationTokenResponse | None:
            if error is not None:
                return _refused(context, request, error)
            dependencies.forwarding.send(
                request,
                lambda response: context.respond_forwarded(_in_version(context, response)),
                client_context=context,
            )
            return None

        made = context.after(_error_of(context, request), serve)
        assert made is None or isinstance(made, CreateDelegationTokenResponse), made
        return made

    return handle_create_delegation_token


def renew(dependencies: NodeDependencies) -> Handle:
    """Return the handler that renews a token."""

    def handle_renew_delegation_token(
        context: RequestContext, request: RenewDelegationTokenRequest
    ) -> RenewDelegationTokenResponse | None:
        if not may_use_tokens(context):
            return RenewDelegationTokenResponse(
                error_code=_NOT_ALLOWED, expiry_timestamp_ms=_NO_TIME
            )
        forward_request(dependencies, context, request)
        return None

    return handle_renew_delegation_token


def expire(dependencies: NodeDependencies) -> Handle:
    """Return the handler that expires a token."""

    def handle_expire_delegation_token(
        context: RequestContext, request: ExpireDelegationTokenRequest
    ) -> ExpireDelegationTokenResponse | None:
        if not may_use_tokens(context):
            return ExpireDelegationTokenResponse(
                error_code=_NOT_ALLOWED, expiry_timestamp_ms=_NO_TIME
            )
        forward_request(dependencies, context, request)
        return None

    return handle_expire_delegation_token


def _error_of(
    context: RequestContext, request: CreateDelegationTokenRequest
) -> Generator[None, None, ErrorCode | None]:
    """Return the error of a creation that is refused here; yields after some renewers."""
    if request.owner_principal_name and request.owner_principal_type is None:
        # Kafka fails to make a principal without a type.
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if not may_use_tokens(context):
        return _NOT_ALLOWED
    owner, access = owner_of(request, context.principal), context.access
    if (
        access is not None
        and owner != str(context.principal)
        and not access.allows(AclOperation.CREATE_TOKENS, AclResourceType.USER, owner)
    ):
        return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    for number, each in enumerate(request.renewers):
        if each.principal_type != USER:
            return ErrorCode.INVALID_PRINCIPAL_TYPE
        if number % _RENEWERS_AT_ONCE == 0:
            yield
    return None


def _refused(
    context: RequestContext, request: CreateDelegationTokenRequest, error: ErrorCode
) -> CreateDelegationTokenResponse:
    if error is ErrorCode.UNKNOWN_SERVER_ERROR:
        return _in_version(context, refuse_create_token(request, Refusal(error)))
    owner = owner_of(request, context.principal)
    return _in_version(context, refuse_creation(error, owner, context.principal))


def _in_version(
    context: RequestContext, response: CreateDelegationTokenResponse
) -> CreateDelegationTokenResponse:
    """Remove the fields that clients of older versions do not know."""
    if context.version < _REQUESTER_SINCE:
        response.token_requester_principal_type = response.token_requester_principal_name = ""
    return response
