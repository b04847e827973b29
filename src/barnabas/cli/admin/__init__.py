"""Commands that administer brokers, configurations, quotas, the quorum and profiles."""
