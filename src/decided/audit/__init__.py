"""The record of every decision: lines that hold the hash of the one before, how they are written, and how checked."""
