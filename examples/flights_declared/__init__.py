"""Departures from New York as a declared pipeline; `make flights` runs it."""
