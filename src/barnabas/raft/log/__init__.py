"""The metadata log, its batches and its snapshots (KIP-630)."""
