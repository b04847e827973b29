"""Client quotas and connection quotas: what peers may use, and how long who used more waits."""
