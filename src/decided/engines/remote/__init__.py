"""Models behind another server."""
