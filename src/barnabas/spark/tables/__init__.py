"""Maintenance of the tables that the sinks write: small files, old snapshots, unnamed files."""
