"""Client quotas and connection quotas: limits of clients, and throttling above the limits."""
