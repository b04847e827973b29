"""How calls of a consumer begin, wait and end; iteration and look-ups."""
