"""The version, in a separate file that packaging can read without importing PyTorch."""

__version__ = "1.0.0"
