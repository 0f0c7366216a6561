"""The bench: explanation methods measured on models whose answer is known."""
