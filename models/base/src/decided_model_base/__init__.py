"""The files of decided-base-4. `decided` finds them here; there is nothing to import."""
