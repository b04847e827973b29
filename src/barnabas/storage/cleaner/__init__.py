"""Compaction of logs (Kafka's LogCleaner)."""
