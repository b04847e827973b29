"""Configuration keys of groups, by protocol."""
