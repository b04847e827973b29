"""Checks of requests before they are served. `table` lists the checks of all APIs."""
