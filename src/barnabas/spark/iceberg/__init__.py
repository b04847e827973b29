"""`format("barnabas_iceberg")`: writes a stream or DataFrame to an Iceberg table without a jar."""
