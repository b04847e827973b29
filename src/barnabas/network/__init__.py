"""Framed connections: ordered responses on the server side, correlated requests on the client's."""
