"""`barnabas consume`: records of topics to standard output."""
