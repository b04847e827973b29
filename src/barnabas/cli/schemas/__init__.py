"""`barnabas schemas`: the schemas, compatibility levels and modes of a registry."""
