"""The files of decided-base-1. `decided` finds them here; there is nothing to import."""
