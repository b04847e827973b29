"""API handlers, one file per API. `table` lists them; each is imported at its first request."""
