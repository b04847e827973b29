"""Members of streams groups, and how they move towards their target tasks."""
