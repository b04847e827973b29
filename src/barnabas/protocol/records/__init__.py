"""One module per type of record that Kafka keeps in its own logs and files."""
