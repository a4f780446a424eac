"""What was learnt about a question from labels: the file, and its use on the way out."""
