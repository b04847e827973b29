"""PySpark support: `format("barnabas")` reads and writes topics; includes a Java for Spark.

Names and semantics are those of Spark's Kafka connector. Modules are imported only when Spark needs
them; workers import the client on their first read.
"""
