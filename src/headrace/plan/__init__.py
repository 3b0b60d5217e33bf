"""Programs as values: nodes, checks, rewrites, levels, explanations. Nothing here runs one."""
