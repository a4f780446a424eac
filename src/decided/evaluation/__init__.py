"""How good the answers are; learning from labels."""
