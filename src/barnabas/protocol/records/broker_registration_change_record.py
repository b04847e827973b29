"""BrokerRegistrationChangeRecord (versions 0-3):
type 17 of the metadata log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT8, INT32, INT64, UUID, Record, array, field


class BrokerRegistrationChangeRecord(Record, type=17, versions="0-3", flexible="0+"):
    broker_id: int = field(INT32, "0+")
    broker_epoch: int = field(INT64, "0+")
    fenced: int = field(INT8, "0+", default=0, tag=0)
    in_controlled_shutdown: int = field(INT8, "1+", default=0, tag=1)
    log_dirs: list[bytes] = field(array(UUID), "2+", default=[], tag=2)
    cordoned_log_dirs: list[bytes] | None = field(
        array(UUID), "3+", nullable="3+", default=None, tag=3
    )
