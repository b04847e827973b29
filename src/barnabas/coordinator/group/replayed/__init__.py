"""What consumer, share and streams groups share: their records are replayed into a table."""
