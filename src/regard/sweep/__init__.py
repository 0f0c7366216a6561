"""Sweeps: train many variants of one configuration over several seeds, and compare them."""
