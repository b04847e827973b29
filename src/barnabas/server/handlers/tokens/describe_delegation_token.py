"""DescribeDelegationToken (key 41, v0-3): list tokens with their HMACs (KIP-48, KIP-373).

A client sees the tokens that it owns, has requested or may renew. It sees other tokens with the
right DESCRIBE on the token, or DESCRIBE_TOKENS on the owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.credentials import SECRET_KEY, principal_parts, token_hmac
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.security import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)
from barnabas.protocol.resources import AclOperation, AclResourceType
from barnabas.server.handlers.tokens.rules import may_use_tokens

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.metadata.credentials import Tokens
    from barnabas.protocol.messages.security import (
        DescribeDelegationTokenOwner,
        DescribeDelegationTokenRequest,
    )
    from barnabas.protocol.records.security import DelegationTokenRecord
    from barnabas.server.dispatch.access import Access
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeDependencies

# First version whose responses have the requester of a token.
_REQUESTER_SINCE = 3
_COMPARED_AT_ONCE = 100


def handler(dependencies: NodeDependencies) -> Handle:
    """Return the handler that lists tokens."""
    secret_key = dependencies.config.optional_string(SECRET_KEY) or ""

    def handle_describe_delegation_token(
        context: RequestContext, request: DescribeDelegationTokenRequest
    ) -> DescribeDelegationTokenResponse | None:
        if not may_use_tokens(context):
            return _response(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, [])
        if not secret_key:
            return _response(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, [])
        tokens = dependencies.cluster.image.tokens
        return context.in_slices(_answer(context, request, tokens, secret_key))

    return handle_describe_delegation_token


def _answer(
    context: RequestContext,
    request: DescribeDelegationTokenRequest,
    tokens: Tokens,
    secret_key: str,
) -> Generator[None, None, DescribeDelegationTokenResponse]:
    wanted = None if request.owners is None else (yield from _principals(request.owners))
    requester, access = str(context.principal), context.access
    found: list[DescribedDelegationToken] = []
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
            found.append(_described(token, token_hmac(secret_key, token.token_id), context.version))
    return _response(ErrorCode.NONE, found)


def _principals(
    owners: list[DescribeDelegationTokenOwner],
) -> Generator[None, None, set[str]]:
    made: set[str] = set()
    for number, each in enumerate(owners):
        made.add(f"{each.principal_type}:{each.principal_name}")
        if number % _COMPARED_AT_ONCE == 0:
            yield
    return made


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
