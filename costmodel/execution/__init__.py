"""Module and plan -> module that runs the plan."""
