"""What the checks of requests for consumer, share and streams groups have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.server.security.authorizer.checks.check import (
    DESCRIBE,
    GROUP,
    TOPIC,
    Partial,
    divide,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from typing import Any

    from barnabas.protocol.schema import Message
    from barnabas.server.security.authorizer.checks.check import Verdict
    from barnabas.server.security.authorizer.rights import Rights


def check_topics(
    rights: Rights, names: Iterable[str], failed: Callable[[ErrorCode, None], Message]
) -> Generator[None, None, Verdict]:
    """Refuse a heartbeat with topics that the client may not describe.

    Args:
        rights: the rights of the client.
        names: the topics of the heartbeat.
        failed: returns a response with an error.
    """
    _, refused = yield from divide(
        dict.fromkeys(names), lambda topic: rights.allows(DESCRIBE, TOPIC, topic)
    )
    return failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None) if refused else None


def check_described_groups(
    rights: Rights, request: Any, failed: Callable[[str, ErrorCode, None], object]
) -> Generator[None, None, Verdict]:
    """Refuse the groups that the client may not describe.

    Args:
        rights: the rights of the client.
        request: has `group_ids`, which keeps the allowed groups.
        failed: returns the description of a group with an error.
    """
    allowed, refused = yield from divide(
        request.group_ids, lambda group: rights.allows(DESCRIBE, GROUP, group)
    )
    if not refused:
        return None
    request.group_ids = allowed
    error = ErrorCode.GROUP_AUTHORIZATION_FAILED

    def amend(response: Any) -> Any:
        response.groups = [*(failed(group, error, None) for group in refused), *response.groups]
        return response

    return Partial(request, amend)
