"""The assignors of Kafka: server-side assignors of partitions, and assignors of tasks."""
