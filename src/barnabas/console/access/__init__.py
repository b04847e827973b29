"""Who may do what in a console."""
