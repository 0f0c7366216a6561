"""Explanation methods behind one interface, at the level of inputs, heads and edges."""
