"""Wrong words of a command, and files that do not serve its probes, are refused before torch is imported."""

from collections.abc import Sequence

from interp.options import RunOptions


def refuse_wrong_words(models: Sequence[str], prompts: Sequence[str], asked: RunOptions) -> None:
    """Raise what the run would raise for its probes, prompts, models and settings, cheapest first.

    What only the hub knows, or the model (a layer it does not have), is refused when that is reached.
    """
    from interp.running.choose_probes import choose_probes, probe_names
    from interp.settings import split_commas

    probe_names(split_commas(asked.probes) if isinstance(asked.probes, str) else map(str, asked.probes))
    files = []
    if prompts:
        from interp.prompting.files import prompts_of_file

        files = [prompts_of_file(name, asked.text_column) for name in prompts]
    if models:
        from interp.loading.sources import is_on_hub, locate

        for name in models:
            if not is_on_hub(name):
                locate(name, asked.revision, asked.gguf)
    for chosen in choose_probes(asked.probes, asked.settings or {}):
        for file in files:
            if file is not None:
                chosen.probe.refuse(file)
