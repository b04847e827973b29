"""`barnabas spark`: checks of Spark jobs."""
