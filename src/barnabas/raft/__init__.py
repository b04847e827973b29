"""The metadata quorum: KRaft, pull-based Raft over `__cluster_metadata-0` (KIP-595, KIP-630)."""
