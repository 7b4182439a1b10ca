"""Prompt sets as data and generators."""
