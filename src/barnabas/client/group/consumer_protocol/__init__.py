"""Membership under the consumer group protocol (KIP-848)."""
