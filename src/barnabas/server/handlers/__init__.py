"""One file per API; `table` names them all, and each is imported at its first request."""
