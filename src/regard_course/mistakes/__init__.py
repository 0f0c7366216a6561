"""Exercises solved right, and solved with known mistakes."""
