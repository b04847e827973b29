"""Handlers of APIs on configurations, client quotas and users."""
