"""Credentials of users in the metadata log."""
