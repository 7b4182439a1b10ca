"""What the probes draw, from findings alone; plotly is imported inside the functions."""
