"""Kafka's wire protocol without input or output: field tables, codec, headers and frames."""
