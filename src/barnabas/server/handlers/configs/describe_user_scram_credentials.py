"""DescribeUserScramCredentials (key 50, v0): list mechanisms and iterations (KIP-554).

Secrets are never returned. The credentials come from the metadata log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.security import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from barnabas.server.dispatch.slices import drained
from barnabas.waiting.steps import count_gradually, gradually

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import NodeDependencies


def handler(dependencies: NodeDependencies) -> Handle:
    """Return the handler that lists SCRAM credentials."""
    return DescribeUserScramCredentialsHandler(dependencies).handle_describe_user_scram_credentials


class DescribeUserScramCredentialsHandler:
    """Builds responses from the metadata image."""

    __slots__ = ("_cluster",)

    def __init__(self, dependencies: NodeDependencies) -> None:
        self._cluster = dependencies.cluster

    def handle_describe_user_scram_credentials(
        self,
        context: RequestContext,
        request: DescribeUserScramCredentialsRequest,
    ) -> DescribeUserScramCredentialsResponse | None:
        """Describe the requested users, or all users if the request names none."""
        return context.in_slices(self._build_response(request))

    def _build_response(
        self, request: DescribeUserScramCredentialsRequest
    ) -> Generator[None, None, DescribeUserScramCredentialsResponse]:
        known = self._credentials()
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

    def _credentials(self) -> dict[str, list[CredentialInfo]]:
        """Return the mechanisms and iterations by user."""
        found: dict[str, list[CredentialInfo]] = {}
        stored = self._cluster.image.credentials
        for record in map(stored.__getitem__, sorted(stored)):
            found.setdefault(record.name, []).append(
                CredentialInfo(mechanism=record.mechanism, iterations=record.iterations)
            )
        return found


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
