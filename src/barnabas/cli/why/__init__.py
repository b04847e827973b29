"""`barnabas why`: explain in words why something waits."""
