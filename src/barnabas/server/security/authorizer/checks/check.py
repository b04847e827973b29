"""The result of a check of one request, and helpers of all checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from barnabas.protocol.resources import AclOperation, AclResourceType
from barnabas.protocol.schema import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from barnabas.server.security.authorizer.authorizer import Rights


T = TypeVar("T")

TOPIC = int(AclResourceType.TOPIC)
GROUP = int(AclResourceType.GROUP)
TRANSACTIONAL_ID = int(AclResourceType.TRANSACTIONAL_ID)
READ = int(AclOperation.READ)
WRITE = int(AclOperation.WRITE)
CREATE = int(AclOperation.CREATE)
DELETE = int(AclOperation.DELETE)
ALTER = int(AclOperation.ALTER)
DESCRIBE = int(AclOperation.DESCRIBE)
CLUSTER_ACTION = int(AclOperation.CLUSTER_ACTION)
DESCRIBE_CONFIGS = int(AclOperation.DESCRIBE_CONFIGS)
ALTER_CONFIGS = int(AclOperation.ALTER_CONFIGS)
IDEMPOTENT_WRITE = int(AclOperation.IDEMPOTENT_WRITE)
TWO_PHASE_COMMIT = int(AclOperation.TWO_PHASE_COMMIT)


class Partial(msgspec.Struct, frozen=True):
    """Verdict on a request that is served in part, or whose response is filtered."""

    # The request without its rejected part.
    request: Message
    # Adds the errors of the rejected part to the response, or removes items that the client must
    # not see.
    amend: Callable[[Any], Message]


# None: the request is allowed. A message: the response to a refused request.
Verdict: TypeAlias = Message | Partial | None
# Checks a request, at once or in steps.
Check: TypeAlias = "Callable[[Rights, Any], Verdict | Generator[None, None, Verdict]]"


def divide(
    items: Iterable[T], is_allowed: Callable[[T], bool]
) -> Generator[None, None, tuple[list[T], list[T]]]:
    """Return the allowed and the refused items, each in their order; yields after each item."""
    allowed: list[T] = []
    refused: list[T] = []
    for each in items:
        (allowed if is_allowed(each) else refused).append(each)
        yield
    return allowed, refused


def refuse_items(
    request: Any,
    is_allowed: Callable[[Any], bool],
    add_errors: Callable[[Any, list[Any]], None],
    field: str = "topics",
) -> Generator[None, None, Verdict]:
    """Remove the refused items from a request, and add their errors to its response.

    Args:
        request: the request, which keeps the allowed items.
        is_allowed: returns whether the client may use an item.
        add_errors: adds errors to the response for the refused items.
        field: the name of the request's list of items.
    """
    allowed, refused = yield from divide(getattr(request, field), is_allowed)
    if not refused:
        return None
    setattr(request, field, allowed)

    def amend(response: Any) -> Any:
        add_errors(response, refused)
        return response

    return Partial(request, amend)
