"""Dispatch: from the bytes of a request to its handler, and from the response to bytes."""
