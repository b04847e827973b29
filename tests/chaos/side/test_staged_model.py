"""The expected offset of a group after transactions, deletions and expiry."""

from __future__ import annotations

from chaos.side.staged_model import NO_OFFSET, StagedModel


def staged(expires: bool = False) -> StagedModel:
    model = StagedModel()
    model.commit(5, expires)
    model.stage(100)
    return model


def test_a_staged_offset_is_visible_after_the_commit_only() -> None:
    model = staged()
    assert model.committed == 5
    model.end(is_commit=True)
    assert model.committed == 100


def test_an_aborted_transaction_leaves_the_committed_offset() -> None:
    model = staged()
    model.end(is_commit=False)
    assert model.committed == 5


def test_a_later_commit_is_stronger_than_the_staged_offset() -> None:
    model = staged()
    model.commit(7)
    model.end(is_commit=True)
    assert model.committed == 7


def test_a_deletion_discards_the_staged_offset_too() -> None:
    model = staged()
    model.delete()
    model.end(is_commit=True)
    assert model.committed == NO_OFFSET


def test_an_offset_is_committed_again_after_a_deletion() -> None:
    model = staged()
    model.delete()
    model.commit(9)
    model.end(is_commit=True)
    assert model.committed == 9


def test_a_staged_offset_keeps_the_committed_one_from_expiring() -> None:
    model = staged(expires=True)
    model.let_expire()
    assert model.committed == 5
    model.end(is_commit=False)
    model.let_expire()
    assert model.committed == NO_OFFSET


def test_the_offset_of_a_transaction_has_no_retention_of_its_own() -> None:
    model = staged(expires=True)
    model.end(is_commit=True)
    model.let_expire()
    assert model.committed == 100
