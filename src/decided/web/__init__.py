"""HTTP: a thin skin."""
