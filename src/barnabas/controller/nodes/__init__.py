"""Brokers and controllers on the controller: registration, sessions, features, producer ids."""
