"""Streams groups: groups of Kafka Streams applications (KIP-1071)."""
