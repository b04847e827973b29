"""Profiles: named sets of bootstrap servers and client settings in the user's config directory."""
