"""`format("barnabas")`: topics as tables and streams."""
