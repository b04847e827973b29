"""`barnabas remote`: the segments in the store of tiered topics (KIP-405)."""
