"""Serving: the explorer, a page on which one types an input and sees what a run makes of it."""

from regard.serving.app import make_app
from regard.serving.explorer import Explorer

__all__ = ["Explorer", "make_app"]
