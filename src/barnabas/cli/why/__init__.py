"""`barnabas why`: why something waits, in words."""
