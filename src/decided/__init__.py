"""A self-hosted server for typed decisions."""
