"""Module and plan -> module that runs as planned."""
