"""DefaultPrincipalData (version 0):
kept in control batches and clients' payloads.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, STRING, Record, field


class DefaultPrincipalData(Record, versions="0", flexible="0+"):
    type: str = field(STRING, "0+")
    name: str = field(STRING, "0+")
    token_authenticated: bool = field(BOOL, "0+")
