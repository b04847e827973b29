"""The rules of the quorum without input or output: steps and ticks in, effects out (KIP-595)."""
