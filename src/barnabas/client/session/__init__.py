"""The parts that every blocking client has: event loop, waiting, end."""
