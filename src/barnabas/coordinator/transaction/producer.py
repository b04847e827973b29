"""A producer id with its epoch: the identity under which a producer writes (KIP-98)."""

from __future__ import annotations

import msgspec

NO_PRODUCER_ID = -1
NO_EPOCH = -1


class Producer(msgspec.Struct, frozen=True):
    """A producer id and epoch; -1 and -1 for none."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH

    @property
    def is_given(self) -> bool:
        """Whether there is a producer id."""
        return self.producer_id != NO_PRODUCER_ID
