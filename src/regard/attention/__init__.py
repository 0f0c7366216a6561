"""Attention: scores, masks, single- and multi-head attention, positions, blocks, hooks, records."""
