"""A broker's replicas: who leads, who is in sync, what waits for the high watermark."""
