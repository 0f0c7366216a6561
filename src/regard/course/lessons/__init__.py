"""Lessons: what the course teaches, the runs that show it, and what ten seeds came to."""
