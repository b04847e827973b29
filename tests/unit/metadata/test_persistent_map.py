"""The map of the image: immutable, shared, ordered by its keys only."""

from __future__ import annotations

from hypothesis import given, strategies as st

from barnabas.metadata.persistent_map import PersistentMap

CHANGES = st.lists(
    st.tuples(st.dictionaries(st.text(max_size=3), st.integers()), st.lists(st.text(max_size=3))),
    max_size=8,
)


@given(CHANGES)
def test_a_map_has_the_same_content_as_a_dict(
    changes: list[tuple[dict[str, int], list[str]]],
) -> None:
    expected: dict[str, int] = {}
    made: PersistentMap[str, int] = PersistentMap()
    for put, removed in changes:
        before, snapshot = made, dict(made)
        made = made.evolve(put, removed)
        expected.update(put)
        for key in removed:
            expected.pop(key, None)
        assert dict(made) == expected
        assert len(made) == len(expected)
        assert dict(before) == snapshot


def test_a_map_grows_beyond_its_initial_buckets() -> None:
    made: PersistentMap[str, int] = PersistentMap({f"k{i}": i for i in range(5000)})
    assert len(made) == 5000
    assert made["k4999"] == 4999
    assert "k5000" not in made
    assert made.get("k5000") is None


def test_a_change_shares_the_unchanged_buckets() -> None:
    before: PersistentMap[str, int] = PersistentMap({f"k{i}": i for i in range(5000)})
    after = before.evolve({"k1": -1})
    shared = sum(old is new for old, new in zip(before._buckets, after._buckets, strict=True))
    assert shared == len(before._buckets) - 1


def test_the_order_depends_only_on_the_keys() -> None:
    keys = [f"k{i}" for i in range(300)]
    forth: PersistentMap[str, int] = PersistentMap(dict.fromkeys(keys, 0))
    assert sorted(forth) == sorted(keys)
    again: PersistentMap[str, int] = PersistentMap(dict.fromkeys(keys, 1))
    assert list(forth) == list(again)


def test_bytes_can_be_keys() -> None:
    made: PersistentMap[bytes, str] = PersistentMap({b"a": "x"})
    assert made[b"a"] == "x"


def test_lookups_of_more_keys_than_are_remembered_find_the_values_of_their_own_map() -> None:
    first = PersistentMap({f"key-{number}": number for number in range(3_000)})
    assert [first.get(f"key-{number}") for number in range(3_000)] == [*range(3_000)]
    second = first.evolve({"key-1": -1}, ["key-2"])
    for _ in range(2):
        assert [first.get("key-1"), first.get("key-2"), first.get("other", 5)] == [1, 2, 5]
        assert [second.get("key-1"), second.get("key-2"), second.get("key-3")] == [-1, None, 3]
