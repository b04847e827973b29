"""The active controller: requests become metadata records (KIP-631, QuorumController)."""
