"""The files of decided-base-2. `decided` finds them here; there is nothing to import."""
