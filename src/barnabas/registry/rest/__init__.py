"""The REST interface: requests, routes, and what is forwarded to the leader."""
