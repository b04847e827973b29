"""Replicas with a remote tier (KIP-405): leaders copy segments, followers begin from them."""
