"""Requests of a node to the active controller, in this process or on another node."""
