"""Offsets of open transactions, and stable reads."""

from __future__ import annotations

import pytest

from barnabas.coordinator.group.offset_store import CommittedOffset, OffsetStore

GROUP, KEY, OTHER = "group", ("t", 0), ("t", 1)
PRODUCER = 7


def offset(value: int) -> CommittedOffset:
    return CommittedOffset(value, -1, "", 0)


@pytest.fixture
def store() -> OffsetStore:
    """Return a store with committed offset 10, and a transaction that will commit 20."""
    made = OffsetStore()
    made.put(0, GROUP, KEY, offset(10))
    made.commit(1)
    made.put_transactional(1, PRODUCER, (GROUP, KEY), offset(20))
    made.commit(2)
    return made


def test_offsets_of_an_open_transaction_are_unstable(store: OffsetStore) -> None:
    assert store.unstable(GROUP) == {KEY}
    assert store.unstable("another group") == set()
    assert store.offsets(GROUP)[KEY].offset == 10


@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_stay_unstable_until_the_marker_is_committed(
    store: OffsetStore, is_commit: bool
) -> None:
    """Otherwise a stable read would get the offset from before an acknowledged transaction."""
    store.end_transaction(2, PRODUCER, is_commit)
    assert (store.offsets(GROUP)[KEY].offset, store.unstable(GROUP)) == (10, {KEY})
    store.commit(2)
    assert (store.offsets(GROUP)[KEY].offset, store.unstable(GROUP)) == (10, {KEY})
    store.commit(3)
    assert store.offsets(GROUP)[KEY].offset == (20 if is_commit else 10)
    assert store.unstable(GROUP) == set()


def test_the_next_transaction_keeps_its_offsets_unstable(store: OffsetStore) -> None:
    store.end_transaction(2, PRODUCER, True)
    store.put_transactional(3, PRODUCER, (GROUP, OTHER), offset(5))
    assert store.unstable(GROUP) == {KEY, OTHER}
    store.commit(4)
    assert store.unstable(GROUP) == {OTHER}
    store.end_transaction(4, PRODUCER, True)
    store.commit(5)
    assert store.unstable(GROUP) == set()


def test_a_marker_of_a_producer_without_offsets_changes_nothing(store: OffsetStore) -> None:
    store.end_transaction(2, PRODUCER + 1, True)
    store.commit(3)
    assert store.unstable(GROUP) == {KEY}


def test_transactions_of_several_producers_are_decided_one_by_one(store: OffsetStore) -> None:
    store.put_transactional(2, PRODUCER + 1, (GROUP, KEY), offset(30))
    store.end_transaction(3, PRODUCER, True)
    # The same producer begins again before its marker is committed.
    store.put_transactional(4, PRODUCER, (GROUP, KEY), offset(40))
    store.commit(5)
    # The record of the other transaction came later, so that its commit will be the last.
    assert (store.offsets(GROUP)[KEY].offset, store.unstable(GROUP)) == (20, {KEY})
    store.end_transaction(5, PRODUCER, True)
    store.commit(6)
    assert (store.offsets(GROUP)[KEY].offset, store.unstable(GROUP)) == (40, {KEY})
    store.end_transaction(6, PRODUCER + 1, True)
    store.commit(7)
    assert (store.offsets(GROUP)[KEY].offset, store.unstable(GROUP)) == (40, set())


def test_an_offset_committed_twice_in_a_transaction_counts_once(store: OffsetStore) -> None:
    store.put_transactional(2, PRODUCER, (GROUP, KEY), offset(21))
    store.end_transaction(3, PRODUCER, True)
    store.commit(4)
    assert (store.offsets(GROUP)[KEY].offset, store.unstable(GROUP)) == (21, set())


def test_the_unstable_partitions_of_a_read_do_not_change_afterwards(store: OffsetStore) -> None:
    found = store.unstable(GROUP)
    store.end_transaction(2, PRODUCER, True)
    store.commit(3)
    assert (found, store.unstable(GROUP)) == ({KEY}, set())


def test_a_tombstone_discards_staged_offsets_before_it(store: OffsetStore) -> None:
    """Compaction removes their records, so that a replay of the log would not find them."""
    store.put(2, GROUP, KEY, None)
    store.put_transactional(3, PRODUCER, (GROUP, OTHER), offset(5))
    store.end_transaction(4, PRODUCER, True)
    store.commit(5)
    assert {key: value.offset for key, value in store.offsets(GROUP).items()} == {OTHER: 5}
    assert store.unstable(GROUP) == set()


def test_offsets_stay_unstable_until_their_tombstone_is_committed(store: OffsetStore) -> None:
    store.put(2, GROUP, KEY, None)
    assert (store.staged(GROUP), store.unstable(GROUP)) == ({}, {KEY})
    store.commit(3)
    assert store.unstable(GROUP) == set()


def test_a_transaction_may_stage_an_offset_again_after_a_tombstone(store: OffsetStore) -> None:
    store.put(2, GROUP, KEY, None)
    store.put_transactional(3, PRODUCER, (GROUP, KEY), offset(30))
    store.commit(4)
    assert store.unstable(GROUP) == {KEY}
    store.end_transaction(4, PRODUCER, True)
    store.commit(5)
    assert (store.offsets(GROUP)[KEY].offset, store.unstable(GROUP)) == (30, set())


def test_replaced_offsets_of_an_open_transaction_are_staged_without_a_value(
    store: OffsetStore,
) -> None:
    assert store.staged(GROUP) == {KEY: [offset(20)]}
    store.put(2, GROUP, KEY, offset(11))
    assert store.staged(GROUP) == {KEY: []}


def test_the_latest_offsets_of_a_group_include_its_own_uncommitted_changes(
    store: OffsetStore,
) -> None:
    store.put(2, GROUP, OTHER, offset(11))
    store.put(3, "another group", KEY, offset(12))
    store.put(4, GROUP, KEY, None)
    assert store.latest(GROUP) == {OTHER: offset(11)}
    store.commit(4)
    assert store.latest("another group") == {KEY: offset(12)}
    assert store.latest(GROUP) == {OTHER: offset(11)}
