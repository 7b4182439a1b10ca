"""Wrong words of a command are refused before torch is imported or a model is read."""

from collections.abc import Sequence
from pathlib import Path

from interp.options import RunOptions


def refuse_wrong_words(models: Sequence[str], prompts: Sequence[str], asked: RunOptions) -> None:
    """Raise what the run would raise for its probes, prompts, models and settings, cheapest first.

    What only the hub knows, or the model (a layer it does not have), is refused when that is reached.
    """
    from interp.running.choose_probes import choose_probes, probe_names
    from interp.settings import split_commas

    probe_names(split_commas(asked.probes) if isinstance(asked.probes, str) else map(str, asked.probes))
    if prompts:
        from interp.prompting.files import refuse_unknown_prompts

        for name in prompts:
            refuse_unknown_prompts(name, asked.text_column)
    if asked.adapter is not None and Path(asked.adapter).expanduser().is_dir():
        from interp.loading.adapter import locate_adapter

        locate_adapter(asked.adapter)
    if models:
        from interp.loading.sources import is_on_hub, locate

        for name in models:
            if not is_on_hub(name):
                locate(name, asked.revision, asked.gguf)
    choose_probes(asked.probes, asked.settings or {})
