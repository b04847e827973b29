"""The part of described consumer, share or streams groups that a client may see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.resources import AclOperation, AclResourceType
from barnabas.server.handlers.authorized_operations import GROUP_OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from barnabas.server.dispatch.access import Access

_DESCRIBE = int(AclOperation.DESCRIBE)
_GROUP, _TOPIC = int(AclResourceType.GROUP), int(AclResourceType.TOPIC)
_REFUSED = "The group has described topic(s) that the client is not authorized to describe."


class _DescribedGroup(Protocol):
    error_code: int
    group_id: str
    authorized_operations: int


D = TypeVar("D", bound=_DescribedGroup)


def visible_groups(
    access: Access | None,
    groups: list[D],
    topics_of: Callable[[D], Iterable[str]],
    failed: Callable[[str, ErrorCode, str], D],
    message: str = _REFUSED,
    *,
    includes_operations: bool,
) -> Generator[None, None, list[D]]:
    """Return the groups, with errors for groups with topics that the client may not describe.

    Args:
        access: the rights of the client, or None if rights are not checked.
        groups: the described groups.
        topics_of: returns the names of the topics that a group shows.
        failed: returns the description of a group with an error and a message.
        message: the message for groups with such topics.
        includes_operations: whether the client asks what it may do with the groups.
    """
    shown: list[D] = []
    for group in groups:
        if includes_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = (
                GROUP_OPERATIONS if access is None else access.operations(_GROUP, group.group_id)
            )
        is_visible = access is None or all(
            access.allows(_DESCRIBE, _TOPIC, name, is_logged=False)
            for name in sorted(set(topics_of(group)))
        )
        if not is_visible:
            group = failed(group.group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)
        shown.append(group)
        yield
    return shown
