"""Security of the client's connections."""
