"""Pages that show a cluster. Each file has its routes in `ROUTES`."""
