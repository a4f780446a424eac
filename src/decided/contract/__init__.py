"""The wire: what a request and an answer are. No I/O."""
