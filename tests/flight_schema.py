"""An Avro schema with logical types, and a value that fits it."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

FLIGHT_AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "namespace": "flights",
    "fields": [
        {"name": "origin", "type": "string"},
        {"name": "delay", "type": ["null", "int"], "default": None},
        {"name": "departed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "fare",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "stops", "type": {"type": "array", "items": "string"}},
    ],
}
FLIGHT: dict[str, Any] = {
    "origin": "JFK",
    "delay": 42,
    "departed": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "fare": Decimal("120.50"),
    "stops": ["ORD", "DEN"],
}
