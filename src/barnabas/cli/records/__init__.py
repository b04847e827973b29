"""`barnabas produce` and `consume`: write and read records."""
