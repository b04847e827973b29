"""A follower that fetches many partitions."""

from __future__ import annotations

from barnabas.replication.fetcher.fetch_processing import STEP_BYTES
from unit.replication.following_broker import records

COUNT = 3 * STEP_BYTES // 70


def many(count: int = COUNT) -> bytearray:
    return bytearray(b"".join(records(b"%d" % number, offset=number) for number in range(count)))
