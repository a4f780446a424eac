"""The files of decided-base-6, and the card of the ensemble. `decided` finds them here; there is nothing to import."""
