"""Handlers of APIs on consumer groups and their offsets."""
