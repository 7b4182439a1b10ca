"""Wrong words of a command, and files that do not serve its probes, are refused before torch is imported."""

from collections.abc import Sequence
from pathlib import Path

from interp.options import RunOptions


def refuse_wrong_words(models: Sequence[str], prompts: Sequence[str], asked: RunOptions) -> None:
    """Raise what the run would raise for its probes, prompts, models and settings, cheapest first.

    What only the hub or a GGUF file knows is refused when that is reached.
    """
    from interp.running.choose_probes import choose_probes

    chosen = choose_probes(asked.probes, asked.settings or {})
    files = []
    if prompts:
        from interp.prompting.files import prompts_of_file

        files = [file for name in prompts if (file := prompts_of_file(name, asked.text_column)) is not None]
    depths = {depth for name in models if (depth := _n_layers(name, asked)) is not None}
    for depth in depths:
        for each in chosen:
            each.probe.refuse_fields(depth)
    for file in files:
        for each in chosen:
            each.probe.refuse(file)
    if asked.adapter is not None and Path(asked.adapter).expanduser().is_dir():
        from interp.loading.adapter import locate_adapter

        locate_adapter(asked.adapter)


def _n_layers(name: str, asked: RunOptions) -> int | None:
    """How many layers a model has, from its configuration; None where that is elsewhere or does not say."""
    from interp.loading.aliases import ALIASES
    from interp.loading.sources import is_on_hub, locate
    from interp.system.foreign_files import read_json

    if is_on_hub(name):
        alias = ALIASES.get(name.partition("@")[0])
        return None if alias is None else alias.n_layers
    files = locate(name, asked.revision, asked.gguf).files
    if files.gguf is not None:
        return None
    try:
        stated = read_json(files.folder / "config.json")
    except (OSError, ValueError, RecursionError):
        return None  # rejected with a message where the model is loaded
    found = [stated[key] for key in _DEPTH if key in stated] if isinstance(stated, dict) else []
    return found[0] if found and isinstance(found[0], int) else None


_DEPTH = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
"""What configurations call the number of their layers."""
