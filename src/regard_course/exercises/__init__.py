"""Exercises: inputs, and the functions that draw them."""
