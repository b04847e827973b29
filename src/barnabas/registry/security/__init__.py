"""Logins at the registry, and rights on subjects."""
