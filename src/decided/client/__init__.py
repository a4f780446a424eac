"""Talking to a server of the protocol, typed, with retries."""
