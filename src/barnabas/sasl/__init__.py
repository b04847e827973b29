"""SASL mechanisms without I/O, for servers and clients (RFC 4422), and JAAS configurations."""
