"""Runs the core over a log, timers and connections, and reports committed records."""
