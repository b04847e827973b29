"""Pending requests as objects instead of tasks: purgatories on a timing wheel."""
