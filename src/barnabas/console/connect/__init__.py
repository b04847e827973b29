"""Kafka Connect: a client of its REST interface, its settings, and forms of connectors."""
