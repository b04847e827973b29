"""Subscription, assigned partitions and positions of a consumer."""
