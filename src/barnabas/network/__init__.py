"""Framed connections: ordered responses on the server, correlated requests on the client."""
