"""Configuration of a node: keys, parsing, effective values, and their description."""
