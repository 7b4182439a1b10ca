"""Wind tunnels: generative processes with exact posteriors, small networks trained on them, and how close
they come.

One process a file (`bijection`), the networks in `networks`, the loop in `training`, the measure in
`evaluation`. `interp tunnel` trains, evaluates, sweeps and rebuilds.
"""
