"""The models, one file per kind."""
