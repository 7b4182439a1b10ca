"""The machine under a run: processes, signals, threads, whole files, progress, the environment."""
