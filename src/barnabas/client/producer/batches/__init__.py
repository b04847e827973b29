"""Batches of records that wait to be sent, and their results."""
