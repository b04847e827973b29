"""`barnabas pipeline`, `tables` and `spark`: pipelines, tables and jobs of Spark."""
