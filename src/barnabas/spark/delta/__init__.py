"""`format("barnabas_delta")`: a stream or DataFrame into a Delta table, without a jar."""
