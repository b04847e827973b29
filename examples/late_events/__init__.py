"""Late and out-of-order events, joined with stateful Python; `make late` runs it."""
