"""Authorization by access control lists in the metadata log (KIP-801)."""
