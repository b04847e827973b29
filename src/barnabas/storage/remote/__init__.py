"""The remote tier of logs (KIP-405): segments in a store, their states, indexes and reads."""
