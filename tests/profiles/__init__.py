"""Profiles: the file, its use on the wire, teaching, outcomes."""
