"""Kafka's wire protocol without any input or output: field tables, codec, headers, frames."""
