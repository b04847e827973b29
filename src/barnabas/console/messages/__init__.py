"""Messages that the console shows: search, tail and decoding."""
