"""The machine under a run: processes, signals, threads, memory, whole files, progress, the environment."""

__all__ = [
    "array_files",
    "calls",
    "child_processes",
    "digest",
    "environment",
    "fingerprint",
    "float64",
    "foreign_files",
    "habits",
    "heap",
    "locks",
    "offload",
    "plain_numbers",
    "processes",
    "progress",
    "rounding",
    "signals",
    "threads",
    "values",
    "whole_files",
]
