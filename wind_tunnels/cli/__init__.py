"""The commands `interp tunnel`."""
