"""Export runs to other programs, and import models of other programs as runs."""
