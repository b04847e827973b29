"""`barnabas cluster`: clusters of processes on this machine."""
