"""Benchmarks: the same loads on Barnabas and on other brokers, in turns in one run."""
