"""Pages of the reference, made from the code."""

import ast
import inspect
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from importlib.resources import files as resources
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import typer
from typer._click.core import Command, Context

GROUPS = {
    "Load and read": ("load", "check_model", "collect", "sampled_prompts", "Capture", "open_capture",
                      "capture_from_arrays", "ModelInfo", "Need", "Rows", "PromptMean", "Prompt", "PromptSet"),
    "Measure": ("run", "analyse", "run_many", "ManyRuns", "plan", "Plan", "replicate"),
    "Records and findings": ("open_run", "RunRecord", "Findings", "Scalar", "Interval", "Null", "Control", "Table",
                             "Quantity", "Quantities"),
    "Compare": ("compare", "diff", "Diff", "power", "index_runs"),
    "Look": ("show_tokens", "TokenStrip", "patching_map", "PatchingMap", "logit_attribution", "LogitAttribution",
             "open_features", "Features", "feature_overlap", "FeatureOverlap", "fit_lens", "FittedLens", "open_lens",
             "save_lens"),
    "Change a model": ("applied", "with_means", "generate", "Continuations", "Continuation", "Edit", "AblateHeads",
                       "AttentionOff", "BypassLayer", "FeedForwardOff", "KeepAxis", "PatternsOf", "RemoveAxis",
                       "ReplaceCoordinates", "RotateAxes", "ShiftAxis", "listening", "Listener"),
    "Write a probe": ("Probe", "Sentences", "Condition", "Figure", "Readout", "certify"),
    "Errors": ("InterpError", "show_versions"),
}  # fmt: skip
"""The public names in the order of a user's work; `api` refuses to leave one out."""


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table in Markdown."""
    head = list(head)
    lines = [
        head,
        ["---"] * len(head),
        *([str(cell).replace("|", "\\|").replace("\n", " ") for cell in r] for r in rows),
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def api() -> str:
    """Every public name of `interp`, with its docstring."""
    stub = ast.parse((resources("interp") / "__init__.pyi").read_text())
    where = {
        name.name: f"interp.{s.module}.{name.name}"
        for s in stub.body
        if isinstance(s, ast.ImportFrom)
        for name in s.names
    }
    grouped = [name for names in GROUPS.values() for name in names]
    if sorted(grouped) != sorted(where):
        raise ValueError(f"docs/_hooks/reference.py: GROUPS and the public names differ: {set(grouped) ^ set(where)}")
    text = "# Python API\n\nAll public names are attributes of `interp`: `import interp`, then `interp.load(...)`.\n"
    for title, names in GROUPS.items():
        text += f"\n## {title}\n"
        text += "".join(f"\n::: {where[name]}\n" for name in names)
    return text


def command_line() -> str:
    """Every command with its options, from the parser itself."""
    from interp.cli.app import app

    text = "# Command line\n\n`interp COMMAND --help` prints the same in the terminal.\n"
    return text + "".join(
        _command(words, command) for words, command in _commands(typer.main.get_command(app), "interp")
    )


def _commands(command: Command, words: str, parent: Context | None = None) -> Iterator[tuple[str, Command]]:
    if not hasattr(command, "list_commands"):
        yield words, command
        return
    context = Context(command, parent=parent, info_name=words)
    for name in command.list_commands(context):
        yield from _commands(command.get_command(context, name), f"{words} {name}", context)


def _command(words: str, command: Command) -> str:
    context = Context(command, info_name=words)
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    rows = [
        (
            ", ".join(f"`{flag}`" for flag in [*o.opts, *o.secondary_opts]),
            "" if o.is_flag else f"`{o.metavar or o.display_type(context)}`",
            (o.help or "") + (f" Default: `{_said(o.default)}`." if _said(o.default) else ""),
        )
        for o in options
    ]  # fmt: skip
    about = inspect.cleandoc(command.help or "").replace("\f", "")
    text = f"\n## {words}\n\n{about}\n\n```bash\n{' '.join([words, *command.collect_usage_pieces(context)])}\n```\n\n"
    text += table(("Option", "Takes", "Meaning"), rows) if rows else ""
    return text + (f"\n{command.epilog.replace('Example: ', 'Example: `')}`\n" if command.epilog else "")


def _said(value: object) -> str:
    return "" if value is None or isinstance(value, bool) or callable(value) or value in ((), []) else str(value)


def sites() -> str:
    """Every tensor that can be asked for."""
    from interp.sites import SITES

    leading = {"layer": "layer", "depth": "depth", "once": ""}
    rows = [(f"`{s.name}`", s.meaning, ", ".join(filter(None, (leading[s.layers], "row", *s.axes))), s.unit)
            for s in SITES.values()]  # fmt: skip
    return (
        "# Sites\n\nA site is a named tensor of the forward pass, or of the weights: what other libraries call a hook "
        "point or an activation name. `interp.collect(model, prompts, [\"v\"])` reads one.\n\n"
        "`layer` counts decoder blocks from 0. `depth` counts the residual stream: 0 is the embedding, `n_layers` the "
        "input of the final norm. Keys and values of grouped-query models have `kv_head`, never the repeated count: "
        "Llama-3.2-1B has 8 KV heads of 64. Keys are compared at equal positions only. Rows of "
        "`pattern_log_weight` are kept for wind tunnels of at most 128 tokens; `pattern_row` takes "
        "layers × heads × rows × longest prompt × 4 bytes.\n\n"
        + table(("Site", "Meaning", "Axes", "Unit"), rows)
        + "\nA name that ends in `_no_first` leaves the first position out and renormalises the rest. One that ends in "
        "`_null` is computed with another prompt's keys.\n"
    )  # fmt: skip


_MULTIMODAL = (
    ("Gemma 3 from 4B", "`Gemma3ForConditionalGeneration`", "`gemma3_text`"),
    ("Mistral Small 3.1 and later", "`Mistral3ForConditionalGeneration`", "`mistral`"),
    ("Ministral 3", "`Mistral3ForConditionalGeneration`", "`ministral3`"),
    ("Llama 4", "`Llama4ForConditionalGeneration`", "`llama4_text`"),
    ("Qwen2-VL, Qwen2.5-VL", "`Qwen2VLForConditionalGeneration`, `Qwen2_5_VLForConditionalGeneration`",
     "`qwen2_vl_text`, `qwen2_5_vl_text`"),
    ("Qwen3-VL", "`Qwen3VLForConditionalGeneration`, `Qwen3VLMoeForConditionalGeneration`",
     "`qwen3_vl_text`, `qwen3_vl_moe_text`"),
    ("Qwen 3.5", "`Qwen3_5ForConditionalGeneration`", "`qwen3_5_text`"),
    ("SmolVLM", "`SmolVLMForConditionalGeneration`", "`llama`"),
    ("LLaVA, LLaVA-OneVision", "`LlavaForConditionalGeneration`, `LlavaOnevisionForConditionalGeneration`",
     "`llama`, `qwen2`"),
    ("InternVL", "`InternVLForConditionalGeneration`", "`qwen2`"),
    ("Aya Vision", "`AyaVisionForConditionalGeneration`", "`cohere2`"),
)  # fmt: skip
"""Multimodal checkpoints whose text part tests read: `tests/tiny_multimodal.py`."""


def families() -> str:
    """Every model family that can be read, and those that cannot."""
    from interp.families import REFUSED
    from interp.families import families as known

    def kind(layout: Any) -> str:
        return "none" if layout is None else {"separate": "q, k, v apart", "per_head": "fused, by head"}.get(
            layout.kind, "fused, q then k then v")  # fmt: skip

    def block(parallel: bool | str) -> str:
        return f"by `{parallel}`" if isinstance(parallel, str) else ("parallel" if parallel else "one after the other")

    rows = [
        (f"`{name}`", kind(f.layout), block(f.parallel) if f.has_attention else "", "yes" if f.qk_norm else "", f.note)
        for name, f in sorted(known().items())
    ]
    refused = [(f"`{kind}`", name, reason) for kind, (name, reason) in REFUSED.items()]
    return (
        "# Model families\n\nA model is read if its `model_type` (in `config.json`) is in this table and it passes the "
        "[self-check](../explanations/hooks.md#the-self-check) on load. Many hub models share one of these types: any "
        "fine-tune of Llama is a `llama`.\n\n"
        + table(("`model_type`", "Projections", "Blocks", "Queries and keys normalised", "Special"), rows)
        + "\nWhat entropies and weights mean beside a learnt sink (gpt-oss): [learnt sinks](../explanations/hooks.md"
        "#learnt-sinks). Queries and keys before rotary embedding (`q_pre`, `k_pre`) are normalised if the model "
        "normalises them, even after rotary embedding (Llama 4, nanochat).\n"
        "\n## Hybrids\n\nWhere some layers have a convolution or a state-space model in place of attention, arrays of "
        "attention hold the layers that have it, `model.info.layers_with_attention`; numbers of layers are those of "
        "the model. Probes that read attention alone see these layers and name them in a note; those of the residual "
        "stream see every depth; probes that read both, or edit the model layer by layer, are refused. Falcon-H1 "
        "has both in every layer: `components` alone is refused, as the state-space model's output is no site. "
        "Qwen3-Next and Qwen 3.5 multiply head outputs by a gate: `z` is what enters W_O, gate included.\n"
        "\n## Multimodal models\n\nWhere prompts are text, the language model inside a multimodal one is read, with "
        "its head: from a folder, the hub or memory. The record says which class it is part of. Weights of the vision "
        "part stay in their files; a model in memory is left whole. Positions and masks are what the whole model makes "
        "of text: tokens that stand for an image which is not there are read like any others. Tested:\n\n"
        + table(("Checkpoint", "Class", "`model_type` of the text part"), _MULTIMODAL)
        + "\nOthers whose text part is in the table above are tried, and the self-check decides. PaliGemma is refused: "
        "its text attends to later tokens.\n"
        "\n## Families that cannot be read\n\n"
        + table(("`model_type`", "Called", "Why"), refused)
        + "\n"
        "A missing family is one `Family` entry under the entry points `interp.families`: see "
        "[a family of your own](../how-to/own-model.md#a-family-of-your-own).\n"
    )  # fmt: skip


def aliases(_: str) -> str:
    """Short names of hub models."""
    from interp.loading.aliases import ALIASES

    return table(("Alias", "Hub id"), [(f"`{name}`", f"`{alias.hub_id}`") for name, alias in ALIASES.items()])


def record() -> str:
    """The schema of `run.json`."""
    from interp.records.run_file import RunFile

    schema = RunFile.model_json_schema()
    about = (
        "# The record: run.json\n\nEvery run writes a folder `runs/<model>-<time>/`. `run.json` holds the numbers and "
        "everything that made them. Tables lie in `tables/*.parquet`, arrays in `arrays.<probe>.safetensors`, the page "
        "in `report.html`. The folder is written whole or not at all. Records of earlier versions still open.\n\n"
        "```python\nimport interp\n\n"
        'record = interp.run(n_pool=40, out=None, quiet=True)  # or interp.open_run("runs/...")\n'
        "print(record.to_frame().head())  # every number, one a row\n```\n\n"
        "Numbers that JSON cannot hold (NaN, infinity) are written as null and come back as NaN.\n"
    )
    parts = {"run.json": schema, **schema["$defs"]}
    return about + "".join(
        f"\n## {name}\n\n{_first(part)}{table(('Field', 'Type', 'Needed'), _properties(part))}"
        for name, part in parts.items()
        if "properties" in part
    )


def _first(part: dict[str, Any]) -> str:
    said = part.get("description", "").split("\n\n")[0]
    return f"{said}\n\n" if said else ""


def _properties(part: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name, told in part["properties"].items():
        yield f"`{name}`", _kind(told), "yes" if name in part.get("required", ()) else ""


def _kind(told: dict[str, Any]) -> str:
    if "$ref" in told:
        name = told["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in told:
        return " or ".join(_kind(each) for each in told["anyOf"])
    if "const" in told or "enum" in told:
        return ", ".join(f"`{each}`" for each in told.get("enum", [told.get("const")]))
    if "prefixItems" in told:
        return "[" + ", ".join(_kind(each) for each in told["prefixItems"]) + "]"
    if told.get("type") == "array":
        return f"list of {_kind(told.get('items', {}))}"
    if told.get("type") == "object":
        inner = told.get("additionalProperties")
        return f"object of {_kind(inner)}" if isinstance(inner, dict) and inner else "object"
    return told.get("type", "any")


def probes(_: str) -> str:
    """Every probe and study with its question."""
    from interp.registry import entries, load_entry

    rows = []
    for name in entries("probe"):
        probe = load_entry("probe", name)
        kind = "causal" if probe().edits_model else "observational"
        kind = "over a training" if probe.follows_checkpoints else kind
        rows.append((f"[`{name}`]({name}.md)", probe.question, kind))
    return table(("Probe", "Question", "Kind"), rows)


def fields_of(name: str) -> str:
    """The settings of a probe or study: `--set NAME.field=value`."""
    from interp.registry import entries, load_entry

    cls = load_entry("probe" if name in entries("probe") else "study", name)
    hints = get_type_hints(cls)
    rows = [(f"`{f.name}`", _words(hints[f.name]), f"`{_default(f)}`") for f in fields(cls)]
    return f"{inspect.cleandoc(cls.__doc__ or '')}\n\n" + table(("Setting", "Type", "Default"), rows)


def _words(hint: Any) -> str:
    if get_origin(hint) is UnionType:
        return " or ".join(_words(each) for each in get_args(hint))
    if hint is type(None):
        return "none"
    inner = get_args(hint)
    if inner and all(isinstance(each, str) for each in inner):
        return ", ".join(f"`{each}`" for each in inner)
    if inner:
        return f"{get_origin(hint).__name__} of {_words(inner[0])}"
    return getattr(hint, "__name__", str(hint))


def _default(field: Any) -> object:
    value = field.default if field.default is not MISSING else field.default_factory()
    return {True: "true", False: "false", None: "none"}.get(value, value) if isinstance(value, bool | None) else value
