"""`barnabas doctor`: diagnose an address, a data directory or a properties file."""
