"""The key of a share partition: a group and a partition of a topic (Kafka's SharePartitionKey)."""

from __future__ import annotations

import re
from typing import NamedTuple

from barnabas.protocol.primitives import uuid_from_string, uuid_to_string

_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1
_INTEGER = re.compile(r"[+-]?\d{1,40}")
# Length of a topic id with the padding of base64.
_PADDED_LENGTH = 24
# Characters that Java's trim removes.
_BLANK = "".join(map(chr, range(0x21)))


class SharePartitionKey(NamedTuple):
    """A group, a topic id of 16 bytes, and the index of a partition."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key by which the share coordinator is found: GROUP:TOPIC_ID:PARTITION."""
        return f"{self.group_id}:{uuid_to_string(self.topic_id)}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> SharePartitionKey:
        """Return the share partition of a coordinator key. The group id may contain colons.

        As in Kafka, colons at the end are ignored, and the topic id may have its padding.

        Raises:
            ValueError: the text has another form.
        """
        group_id, _, rest = text.rstrip(":").rpartition(":")
        group_id, _, topic_id = group_id.rpartition(":")
        if not group_id.strip(_BLANK):
            raise ValueError(f"the share partition key has no group id: {text!r}")
        if not _INTEGER.fullmatch(rest) or not _INT32_MIN <= int(rest) <= _INT32_MAX:
            raise ValueError(f"the share partition key has no partition: {text!r}")
        if len(topic_id) == _PADDED_LENGTH:
            topic_id = topic_id.removesuffix("==")
        return cls(group_id, uuid_from_string(topic_id), int(rest))
