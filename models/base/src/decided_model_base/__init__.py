"""The files of decided-base-10, and the card of the ensemble. `decided` finds them here; there is nothing to import."""
