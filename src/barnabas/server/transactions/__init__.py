"""Requests between brokers for transactions: markers and verification."""
