"""Pages and changes of the console. Each file has its routes in `ROUTES`."""
