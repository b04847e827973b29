"""Numbers, not tests: the same loads on Barnabas and on other brokers, side by side in one run."""
