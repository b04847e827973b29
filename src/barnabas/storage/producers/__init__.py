"""Producers of a log: idempotence, transactions, snapshots."""
