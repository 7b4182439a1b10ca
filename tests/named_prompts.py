"""Prompts by whatever names them, with options of a run beside."""

from interp.options import RunOptions
from interp.prompting import files


def resolve_prompts(prompts, tokenizer=None, **options):
    return files.resolve_prompts(RunOptions(prompts=prompts, **options), tokenizer)
