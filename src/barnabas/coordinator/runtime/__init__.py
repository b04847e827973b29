"""The coordinator runtime: what all coordinators share (Kafka's coordinator-common).

It does not know what the records of a coordinator mean.
"""
