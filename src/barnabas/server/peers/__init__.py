"""Requests of this broker to other brokers."""
