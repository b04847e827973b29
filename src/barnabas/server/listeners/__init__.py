"""Listeners: bound sockets, admission of connections, limits."""
