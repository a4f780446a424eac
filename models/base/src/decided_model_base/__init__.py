"""The files of decided-base-9, and the card of the ensemble. `decided` finds them here; there is nothing to import."""
