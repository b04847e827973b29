"""The wire format of acknowledgements: few batches, without overlaps."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from barnabas.client.share.acknowledgements import GAP, AckBatch, Acknowledgements, AcknowledgeType

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


def test_consecutive_offsets_with_one_type_are_one_batch() -> None:
    acks = Acknowledgements()
    for offset in (5, 3, 4, 9):
        acks.add(offset, ACCEPT)
    assert acks.batches() == [AckBatch(3, 5, (ACCEPT,)), AckBatch(9, 9, (ACCEPT,))]


def test_consecutive_offsets_with_several_types_have_a_type_for_each() -> None:
    acks = Acknowledgements()
    for offset, kind in enumerate((ACCEPT, REJECT, REJECT, RELEASE)):
        acks.add(offset, kind)
    assert acks.batches() == [AckBatch(0, 3, (ACCEPT, REJECT, REJECT, RELEASE))]


def test_long_runs_are_batches_of_their_own() -> None:
    acks = Acknowledgements()
    for offset in range(100):
        acks.add(offset, RELEASE if offset == 50 else ACCEPT)
    assert acks.batches() == [
        AckBatch(0, 49, (ACCEPT,)),
        AckBatch(50, 50, (RELEASE,)),
        AckBatch(51, 99, (ACCEPT,)),
    ]


def test_ranges_of_any_length_are_not_enumerated() -> None:
    acks = Acknowledgements()
    acks.add_range(1, 2**62, GAP)
    acks.add(0, ACCEPT)
    assert acks.batches() == [AckBatch(0, 0, (ACCEPT,)), AckBatch(1, 2**62, (GAP,))]
    assert acks.offsets == {0}


def test_an_offset_in_a_range_can_get_another_type() -> None:
    acks = Acknowledgements()
    acks.add_range(0, 2, REJECT)
    acks.add(1, RELEASE)
    assert acks.batches() == [AckBatch(0, 2, (REJECT, RELEASE, REJECT))]


def test_the_last_type_of_an_offset_counts() -> None:
    acks = Acknowledgements()
    acks.add(0, RENEW)
    assert (acks.has_renewals, acks.renewed) == (True, [0])
    acks.add(0, ACCEPT)
    assert (acks.has_renewals, acks.renewed) == (False, [])


@given(st.dictionaries(st.integers(0, 80), st.sampled_from(AcknowledgeType)))
def test_batches_say_exactly_what_was_added(types: dict[int, AcknowledgeType]) -> None:
    acks = Acknowledgements()
    for offset, kind in types.items():
        acks.add(offset, kind)
    said: dict[int, int] = {}
    last = -1
    for batch in acks.batches():
        assert batch.first_offset > last
        last = batch.last_offset
        size = last - batch.first_offset + 1
        kinds = batch.types * size if len(batch.types) == 1 else batch.types
        assert len(kinds) == size
        said.update(zip(range(batch.first_offset, last + 1), kinds, strict=True))
    assert said == types


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(AssertionError):
        Acknowledgements().add_range(2, 1, GAP)
