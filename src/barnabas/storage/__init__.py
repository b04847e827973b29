"""Partition logs on disk (Kafka's `storage` module); only this package assigns offsets."""
