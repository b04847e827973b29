"""Task assignors: pure functions from members and subtopologies to the tasks of each member."""
