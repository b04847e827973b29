"""The sink: rows become records, at least once or exactly once."""
