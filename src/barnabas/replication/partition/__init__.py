"""One replica of a partition: its roles, ISR, epochs and offsets (Kafka's cluster.Partition)."""
