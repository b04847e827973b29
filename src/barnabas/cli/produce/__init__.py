"""`barnabas produce`: write records to a topic from standard input or files."""
