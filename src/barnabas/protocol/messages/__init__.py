"""The requests and responses of the Kafka protocol, in a module for each area."""
