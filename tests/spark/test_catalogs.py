"""The recipes of docs/tables.md for object stores and catalogs, against servers on this machine.

`moto` stands for S3 and Glue.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from barnabas.spark.delta.maintenance import MaintainedDelta
from barnabas.spark.delta.options import DeltaOptions
from barnabas.spark.iceberg.catalog import TableName, open_table
from barnabas.spark.iceberg.maintenance import MaintainedIceberg
from barnabas.spark.tables.maintenance import MaintainedTable
from documents.blocks import ROOT
from selection import nightly_unless
from spark.aws_server import BUCKET, AwsServer
from spark.iceberg_tables import now_ms
from spark.rest_catalog import RestCatalog

pytestmark = pytest.mark.spark

TARGET = 128 << 20


@pytest.fixture(scope="module")
def aws() -> Iterator[str]:
    """The address of a server of S3 and Glue."""
    with AwsServer() as server:
        yield server.address


def recipe(name: str) -> dict[str, str]:
    """The options that a block of the page assigns to a name."""
    page = (ROOT / "docs" / "tables.md").read_text()
    _, _, rest = page.partition(f"```python\n{name} = ")
    options: dict[str, str] = ast.literal_eval(rest.partition("```")[0])
    return options


def write_twice(spark: SparkSession, sink: str, options: Mapping[str, str], table: str) -> None:
    """Two commits of 30 rows, in partitions."""
    for first in (0, 30):
        frame = spark.sql(
            f"select id, concat('k /', id % 2) as kind from range({first}, {first + 30})"
        ).coalesce(1)
        frame.write.format(sink).mode("append").options(**options).save(table)


def compact_and_expire(table: MaintainedTable) -> None:
    assert table.status(TARGET).rows == 60
    assert table.compact(TARGET, lambda *_: None).removed_files == 4
    removed = table.expire(now_ms(), execute=True, progress=lambda *_: None)
    assert len([each for each in removed.files if each.endswith(".parquet")]) == 4
    assert table.status(TARGET).files == 2


@pytest.mark.nightly
def test_a_delta_table_on_s3(spark: SparkSession, aws: str) -> None:
    endpoint = {"storage.aws_endpoint_url": aws, "storage.aws_allow_http": "true"}
    options = recipe("delta_on_s3") | endpoint
    address = f"s3://{BUCKET}/flights"
    write_twice(spark, "barnabas_delta", options | {"partitionColumns": "kind"}, address)
    storage = {key.removeprefix("storage."): value for key, value in options.items()}
    compact_and_expire(MaintainedDelta(DeltaOptions(address, (), storage)))
    found = DeltaTable(address, storage_options=storage).to_pyarrow_table(
        partitions=[("kind", "=", "k /1")]
    )
    assert sorted(found["id"].to_pylist()) == list(range(1, 60, 2))


@pytest.mark.parametrize("name", nightly_unless("rest".__eq__, ["iceberg_on_s3", "glue", "rest"]))
def test_iceberg_tables_in_catalogs(
    spark: SparkSession, aws: str, tmp_path: Path, name: str
) -> None:
    with RestCatalog(tmp_path) if name == "rest" else nullcontext() as catalog:
        local = {
            "iceberg_on_s3": {
                "catalog.uri": f"sqlite:///{tmp_path}/catalog.db",
                "catalog.s3.endpoint": aws,
            },
            "glue": {"catalog.glue.endpoint": aws, "catalog.s3.endpoint": aws},
            "rest": {"catalog.uri": catalog.uri if catalog else ""},
        }
        options = recipe(name) | local[name]
        table = f"{name}_tables.flights"
        more = {"partitionColumns": "truncate(4, kind), bucket(1, id)"}
        write_twice(spark, "barnabas_iceberg", options | more, table)
        properties = {key.removeprefix("catalog."): value for key, value in options.items()}
        named = TableName(table, properties=properties)
        compact_and_expire(MaintainedIceberg(named))
        found = open_table(named).scan("kind = 'k /1'").to_arrow()
    assert sorted(found["id"].to_pylist()) == list(range(1, 60, 2))
