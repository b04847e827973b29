"""The active controller, which turns requests into metadata records (KIP-631, QuorumController)."""
