"""The log of one partition: append, read, truncate, flush, retain."""
