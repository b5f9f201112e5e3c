"""Graph -> equivalent graph: rewrites that a plan may apply, one a file."""
