"""Configurations that change while the broker runs, and requests that change them."""
