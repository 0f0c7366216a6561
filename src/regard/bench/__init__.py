"""Measure explanation methods on models whose answer is known."""
