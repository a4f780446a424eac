"""What runs when: the product without HTTP."""
