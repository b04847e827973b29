"""Delegation tokens in images, deltas and snapshots."""

from __future__ import annotations

from barnabas.metadata.image import ClusterDelta, ClusterImage, Provenance
from barnabas.protocol.records.nodes import FeatureLevelRecord
from barnabas.protocol.records.security import DelegationTokenRecord, RemoveDelegationTokenRecord
from barnabas.protocol.schema import Record


def token(token_id: str, expiry_ms: int = 5) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner="User:alice",
        requester="User:bob",
        renewers=["User:carol"],
        issue_timestamp=1,
        max_timestamp=9,
        expiration_timestamp=expiry_ms,
        token_id=token_id,
    )


def after(image: ClusterImage, *records: Record) -> ClusterImage:
    delta = ClusterDelta(image)
    for record in records:
        delta.replay(record)
    assert delta.is_empty is not bool(records)
    return delta.apply(Provenance(image.provenance.offset + len(records), 1, 0))


def version(level: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(name="metadata.version", feature_level=level)


def test_a_later_record_replaces_a_token_and_a_removal_deletes_it() -> None:
    image = after(ClusterImage(), token("a"), token("b"))
    later = after(image, token("a", 7), RemoveDelegationTokenRecord(token_id="b"))
    assert dict(later.tokens) == {"a": token("a", 7)}
    assert dict(image.tokens) == {"a": token("a"), "b": token("b")}
    assert len(after(later, RemoveDelegationTokenRecord(token_id="none")).tokens) == 1


def test_a_snapshot_has_the_tokens_and_replaces_all_others() -> None:
    image = after(ClusterImage(), version(14), token("b"), token("a"))
    records = [record for record, _ in image.to_records()]
    assert records[-2:] == [token("a"), token("b")]
    delta = ClusterDelta(after(ClusterImage(), token("old"), token("a", 8)))
    for record in records:
        delta.replay(record)
    delta.finish_snapshot()
    assert dict(delta.apply(image.provenance).tokens) == dict(image.tokens)


def test_a_snapshot_of_a_version_without_tokens_has_none() -> None:
    image = after(ClusterImage(), version(13), token("a"))
    assert [type(record) for record, _ in image.to_records()] == [FeatureLevelRecord]
