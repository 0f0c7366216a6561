"""Puzzles: a learner writes attention as a program, and it becomes a model."""
