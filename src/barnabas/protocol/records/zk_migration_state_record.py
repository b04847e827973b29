"""ZkMigrationStateRecord (version 0):
type 21 of the metadata log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT8, Record, field


class ZkMigrationStateRecord(Record, type=21, versions="0", flexible="0+"):
    zk_migration_state: int = field(INT8, "0+")
