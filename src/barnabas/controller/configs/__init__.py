"""Configurations and client quotas on the controller: rules, values and changes."""
