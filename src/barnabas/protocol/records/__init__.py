"""The records that Kafka keeps in its own logs and files, in a module for each area."""
