"""Configuration of a node: keys, parsing, dynamic values, and changes by admin clients."""
