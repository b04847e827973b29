"""`__remote_log_metadata` (KIP-405): the states of all segments in the remote tier."""
