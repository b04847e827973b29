"""`barnabas start`, `format` and `cluster`: nodes, and clusters of local processes."""
