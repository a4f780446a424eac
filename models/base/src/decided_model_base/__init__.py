"""The files of decided-base-3. `decided` finds them here; there is nothing to import."""
