"""Calls of a consumer: their begin, wait and end; iteration and look-ups."""
