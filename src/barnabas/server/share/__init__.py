"""Share groups on the broker (KIP-932)."""
