"""Commands of the laboratory."""
