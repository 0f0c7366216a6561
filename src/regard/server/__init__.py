"""The explorer and the course as local web applications."""
