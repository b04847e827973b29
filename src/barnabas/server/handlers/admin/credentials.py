"""SCRAM credentials and delegation tokens: descriptions, and changes by the active controller.

- DescribeUserScramCredentials (key 50, v0) lists mechanisms and iterations (KIP-554). Secrets are
  never returned.
- CreateDelegationToken (38, v0-3; v3 adds the owner, KIP-373), RenewDelegationToken (39, v0-2) and
  ExpireDelegationToken (40, v0-2) change tokens (KIP-48). Before the controller, brokers check what
  needs the connection and the rights of the client, in Kafka's order.
- DescribeDelegationToken (41, v0-3; v3 adds the requester) lists tokens with their HMACs. A client
  sees the tokens that it owns, has requested or may renew. It sees other tokens with the right
  DESCRIBE on the token, or DESCRIBE_TOKENS on the owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.credentials import owner_of, refuse_create_token, refuse_creation
from barnabas.controller.result import Refusal
from barnabas.metadata.credentials import SECRET_KEY, principal_parts, token_hmac
from barnabas.network.principal import USER
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.security import (
    CredentialInfo,
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenResponse,
)
from barnabas.protocol.resources import AclOperation, AclResourceType
from barnabas.server.dispatch.slices import drained
from barnabas.server.handlers.forwarded import forwarded
from barnabas.waiting.steps import count_gradually, gradually

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from barnabas.metadata.credentials import Tokens
    from barnabas.protocol.messages.security import (
        CreateDelegationTokenRequest,
        CreateDelegationTokenResponse,
        DescribeDelegationTokenOwner,
        DescribeDelegationTokenRequest,
        ExpireDelegationTokenRequest,
        RenewDelegationTokenRequest,
    )
    from barnabas.protocol.records.security import DelegationTokenRecord
    from barnabas.protocol.schema import Message
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.controller_access.controller_access import ControllerAccess
    from barnabas.server.dispatch.request import Access, Handle, RequestContext
    from barnabas.server.dispatch.served_apis import ServedApi
    from barnabas.settings.definition import ParsedConfig


def describe_user_scram_credentials(cluster: ClusterView) -> Handle:
    """Return the handler that lists SCRAM credentials."""

    def handle_describe_user_scram_credentials(
        context: RequestContext,
        request: DescribeUserScramCredentialsRequest,
    ) -> DescribeUserScramCredentialsResponse | None:
        """Describe the requested users, or all users if the request names none."""
        return context.in_slices(build_response(request))

    def build_response(
        request: DescribeUserScramCredentialsRequest,
    ) -> Generator[None, None, DescribeUserScramCredentialsResponse]:
        known = credentials()
        times = yield from count_gradually(user.name for user in request.users or [])
        times = times or dict.fromkeys(known, 1)
        results = yield from gradually(
            _result(user, count, known.get(user)) for user, count in drained(times)
        )
        return DescribeUserScramCredentialsResponse(
            error_code=ErrorCode.NONE,
            error_message="",
            results=results,
        )

    def credentials() -> dict[str, list[CredentialInfo]]:
        """Return the mechanisms and iterations by user."""
        infos: dict[str, list[CredentialInfo]] = {}
        stored = cluster.image.credentials
        for record in map(stored.__getitem__, sorted(stored)):
            infos.setdefault(record.name, []).append(
                CredentialInfo(mechanism=record.mechanism, iterations=record.iterations)
            )
        return infos

    return handle_describe_user_scram_credentials


def _result(
    user: str, times: int, infos: list[CredentialInfo] | None
) -> DescribeUserScramCredentialsResult:
    error, message = ErrorCode.NONE, ""
    if times > 1:
        error, message = ErrorCode.DUPLICATE_RESOURCE, f"user {user!r} is named more than once"
    elif infos is None:
        error, message = ErrorCode.RESOURCE_NOT_FOUND, f"user {user!r} has no SCRAM credentials"
    return DescribeUserScramCredentialsResult(
        user=user,
        error_code=error,
        error_message=message,
        credential_infos=[] if error else list(infos or []),
    )


def may_use_tokens(context: RequestContext) -> bool:
    """Return whether the client has authenticated, and not by a token.

    A token can thus not be used to get another one, which would outlive it.
    """
    return context.is_authenticated and not context.principal.is_token


# First version with an owner in the request, and a requester in the response (KIP-373).
_REQUESTER_SINCE = 3
_NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
_NO_TIME = -1
_RENEWERS_AT_ONCE = 1_000


def create_delegation_token(forwarding: ControllerAccess) -> Handle:
    """Return the handler that creates a token."""

    def handle_create_delegation_token(
        context: RequestContext, request: CreateDelegationTokenRequest
    ) -> CreateDelegationTokenResponse | None:
        def serve(error: ErrorCode | None) -> CreateDelegationTokenResponse | None:
            if error is not None:
                return _refused(context, request, error)
            forwarding.send(
                request,
                lambda response: context.respond_forwarded(_in_version(context, response)),
                client_context=context,
            )
            return None

        return context.after(_error_of(context, request), serve)

    return handle_create_delegation_token


def renew_delegation_token(
    served: Mapping[int, ServedApi], forwarding: ControllerAccess, cluster: ClusterView
) -> Handle:
    """Return the handler that renews a token."""
    forward = forwarded(served, forwarding, cluster)

    def handle_renew_delegation_token(
        context: RequestContext, request: RenewDelegationTokenRequest
    ) -> Message | None:
        if not may_use_tokens(context):
            return RenewDelegationTokenResponse(
                error_code=_NOT_ALLOWED, expiry_timestamp_ms=_NO_TIME
            )
        return forward(context, request)

    return handle_renew_delegation_token


def expire_delegation_token(
    served: Mapping[int, ServedApi], forwarding: ControllerAccess, cluster: ClusterView
) -> Handle:
    """Return the handler that expires a token."""
    forward = forwarded(served, forwarding, cluster)

    def handle_expire_delegation_token(
        context: RequestContext, request: ExpireDelegationTokenRequest
    ) -> Message | None:
        if not may_use_tokens(context):
            return ExpireDelegationTokenResponse(
                error_code=_NOT_ALLOWED, expiry_timestamp_ms=_NO_TIME
            )
        return forward(context, request)

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


# First version whose responses have the requester of a token.
_COMPARED_AT_ONCE = 100


def describe_delegation_token(config: ParsedConfig, cluster: ClusterView) -> Handle:
    """Return the handler that lists tokens."""
    secret_key = config.optional_string(SECRET_KEY) or ""

    def handle_describe_delegation_token(
        context: RequestContext, request: DescribeDelegationTokenRequest
    ) -> DescribeDelegationTokenResponse | None:
        if not may_use_tokens(context):
            return _response(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, [])
        if not secret_key:
            return _response(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, [])
        tokens = cluster.image.tokens
        return context.in_slices(_make_response(context, request, tokens, secret_key))

    return handle_describe_delegation_token


def _make_response(
    context: RequestContext,
    request: DescribeDelegationTokenRequest,
    tokens: Tokens,
    secret_key: str,
) -> Generator[None, None, DescribeDelegationTokenResponse]:
    wanted = None if request.owners is None else (yield from _principals(request.owners))
    requester, access = str(context.principal), context.access
    described: list[DescribedDelegationToken] = []
    compared = 0
    for token in tokens.values():
        compared += 1 + len(token.renewers)
        if compared > _COMPARED_AT_ONCE:
            compared = 0
            yield
        people = {token.owner, token.requester, *token.renewers}
        if wanted is not None and wanted.isdisjoint(people):
            continue
        if requester in people or _may_see(access, token):
            described.append(
                _described(token, token_hmac(secret_key, token.token_id), context.version)
            )
    return _response(ErrorCode.NONE, described)


def _principals(
    owners: list[DescribeDelegationTokenOwner],
) -> Generator[None, None, set[str]]:
    principals: set[str] = set()
    for number, each in enumerate(owners):
        principals.add(f"{each.principal_type}:{each.principal_name}")
        if number % _COMPARED_AT_ONCE == 0:
            yield
    return principals


def _may_see(access: Access | None, token: DelegationTokenRecord) -> bool:
    if access is None:
        return True
    describe, describe_tokens = AclOperation.DESCRIBE, AclOperation.DESCRIBE_TOKENS
    kind, user = AclResourceType.DELEGATION_TOKEN, AclResourceType.USER
    # The client has not named the token, so that a refusal is nothing to log.
    return access.allows(describe, kind, token.token_id, is_logged=False) or access.allows(
        describe_tokens, user, token.owner, is_logged=False
    )


def _described(token: DelegationTokenRecord, hmac: bytes, version: int) -> DescribedDelegationToken:
    owner_type, owner_name = principal_parts(token.owner)
    described = DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=hmac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, name in map(principal_parts, token.renewers)
        ],
    )
    if version >= _REQUESTER_SINCE:
        kind, name = principal_parts(token.requester)
        described.token_requester_principal_type = kind
        described.token_requester_principal_name = name
    return described


def _response(
    error: ErrorCode, tokens: list[DescribedDelegationToken]
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=error, tokens=tokens)
