"""Checks of jobs before they run: which options of Spark's Kafka connector mean the same here."""
