"""Parts that the sinks for Delta and for Iceberg share: writers, upserts, files, maintenance."""
