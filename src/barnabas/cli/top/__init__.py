"""`barnabas top`: rates, lag, purgatories, connections, CPU and memory, live or once as JSON."""
