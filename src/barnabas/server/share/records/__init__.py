"""The records of a share partition and their states, without I/O (KIP-932)."""
