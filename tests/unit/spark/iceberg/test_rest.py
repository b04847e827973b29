"""Commits through a REST catalog."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from barnabas.spark.iceberg.catalog import TableName, open_table
from barnabas.spark.iceberg.maintenance import MaintainedIceberg
from spark.iceberg_tables import Writer, now_ms, rows
from spark.rest_catalog import RestCatalog


@pytest.mark.parametrize("batch", [0, None])
def test_a_commit_whose_response_is_lost_is_not_repeated(tmp_path: Path, batch: int | None) -> None:
    with RestCatalog(tmp_path) as catalog:
        name = TableName("lake.flights", properties={"uri": catalog.uri, "type": "rest"})
        writer = Writer(name)
        catalog.lost.append(504)
        assert writer.write(1, batch=batch)
        assert not catalog.lost
        assert len(open_table(name).snapshots()) == 1
        assert rows(name) == [1]


def test_batches_of_several_drivers_are_added_once(tmp_path: Path) -> None:
    with RestCatalog(tmp_path) as catalog:
        name = TableName("lake.flights", properties={"uri": catalog.uri, "type": "rest"})
        writer = Writer(name, partition_by=("kind",))
        with ThreadPoolExecutor(3) as pool:
            for batch in range(3):
                added = list(pool.map(lambda batch: writer.write(batch, batch=batch), [batch] * 3))
                assert sorted(added) == [False, False, True]
        maintained = MaintainedIceberg(name)
        writer.write(10, batch=3)
        assert maintained.compact(128 << 20, lambda _done, _total: None).removed_files == 2
        maintained.expire(now_ms(), execute=True, progress=lambda _done, _total: None)
        assert len(open_table(name).snapshots()) == 1
        assert not writer.write(10, batch=3)
        assert rows(name) == [0, 1, 2, 10]
