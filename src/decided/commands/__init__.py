"""The commands of `decided`, one module each: what they take, in words, and what they do with it."""
