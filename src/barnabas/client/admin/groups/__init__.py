"""Admin calls on classic, consumer, share and streams groups."""
