"""The version, in a separate file that packaging can read without importing PyTorch."""

__version__ = "0.1.0"
