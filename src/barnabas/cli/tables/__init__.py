"""`barnabas tables`: maintenance of tables of Delta and Iceberg."""
