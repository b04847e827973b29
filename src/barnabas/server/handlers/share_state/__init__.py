"""Requests of brokers to the share coordinator (KIP-932)."""
