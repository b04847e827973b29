"""`barnabas produce`: records of a topic from standard input or files."""
