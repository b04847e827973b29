"""The share consumer: members of a share group acquire records and acknowledge each (KIP-932)."""
