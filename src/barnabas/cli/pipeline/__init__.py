"""`barnabas pipeline`: projects of Spark Declarative Pipelines."""
