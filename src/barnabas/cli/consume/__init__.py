"""`barnabas consume`: print records of topics on standard output."""
