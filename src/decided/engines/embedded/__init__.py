"""The model inside the package."""
