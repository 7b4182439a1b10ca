"""The probes: one analyser a file, found by name through the entry points `interp.probes`."""
