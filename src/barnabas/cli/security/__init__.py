"""`barnabas security`: set up TLS, users and rights."""
