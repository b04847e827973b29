"""Membership under the classic protocol: join, assignment by the leader, sync."""
