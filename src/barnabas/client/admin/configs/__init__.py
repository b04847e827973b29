"""Admin calls on configs and quotas."""
