"""Handlers of APIs on brokers, the quorum, features and client metrics."""
