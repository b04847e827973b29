"""The size limit of a conversion, whose records are one batch of the state partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Default limit of a batch of `__consumer_offsets`. The log rejects a larger conversion, which would
# take a long turn of the event loop.
CONVERSION_BYTES_MAX = 1 << 20
# Records of a member, and their bytes besides group id, member id and subscriptions.
_RECORDS, _RECORD_BYTES = 3, 20


def fits(group_id: str, members: Iterable[tuple[str, int]]) -> bool:
    """Whether the records of a conversion fit, by a lower estimate.

    Args:
        group_id: the group.
        members: the member ids, and the bytes of the subscriptions of each member.
    """
    total = 0
    for member_id, subscription_bytes in members:
        total += _RECORDS * (len(group_id) + len(member_id) + _RECORD_BYTES) + subscription_bytes
    return total <= CONVERSION_BYTES_MAX
