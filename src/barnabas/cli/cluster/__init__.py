"""`barnabas cluster`: clusters of local processes."""
