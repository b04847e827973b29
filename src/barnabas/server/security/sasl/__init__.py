"""SASL on listeners: states of a connection's login, its configuration, and users."""
