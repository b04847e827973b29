"""Loading of the logs at startup."""
