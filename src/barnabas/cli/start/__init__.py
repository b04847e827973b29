"""`barnabas start` and `barnabas format`."""
