"""Membership in a consumer group: the classic protocol, the KIP-848 protocol, and the assignors."""
