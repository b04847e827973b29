"""Dead-letter topics of share groups (KIP-1191)."""
