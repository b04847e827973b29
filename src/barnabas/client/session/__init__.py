"""What every blocking client has: its event loop, its waits and its end."""
