"""`format("barnabas_delta")`: writes a stream or DataFrame to a Delta table without a jar."""
