"""The cluster as one immutable image, and the deltas that carry it forward (KIP-500, KIP-631)."""
