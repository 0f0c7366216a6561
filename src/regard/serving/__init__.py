"""Serving: the explorer, a page on which one types an input and sees what a subject makes of it."""

from regard.serving.explorer import Explorer
from regard.serving.opening import check_port, show, teach

__all__ = ["Explorer", "check_port", "show", "teach"]
