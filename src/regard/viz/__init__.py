"""Display attention as plain data, in the terminal, and as figures, HTML pages and notebook widgets."""
