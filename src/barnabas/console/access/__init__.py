"""The users of a console: their log-ins, sessions and roles, and the audit log."""
