"""PySpark over Barnabas: `format("barnabas")` to read and write topics, and a Java to run it on.

Names and meanings are those of Spark's own Kafka connector. Nothing here is imported unless Spark
asks for it; workers import the client on their first read.
"""
