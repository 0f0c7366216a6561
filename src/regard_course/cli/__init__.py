"""Commands of the course."""
