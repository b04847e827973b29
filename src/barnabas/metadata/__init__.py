"""The cluster metadata as an immutable image, and deltas that update it (KIP-500, KIP-631)."""
