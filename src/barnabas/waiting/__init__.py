"""Whoever must wait is an object here, not a task: purgatories over a timing wheel."""
