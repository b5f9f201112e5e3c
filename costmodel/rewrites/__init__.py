"""Graph -> equivalent graph: the rewrites that a plan may use, one a file."""
