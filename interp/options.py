"""The options of a run, each declared once: type, default, help, and command-line flag.

`interp.run`, `interp.run_many` and `interp.plan` take the fields of `RunOptions` as keywords, their commands as words.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from functools import wraps
from inspect import Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, ParamSpec, TypeVar, get_args, get_origin

from interp.errors import UsageError
from interp.settings import LARGEST_SEED, MOST, refuse_number, split_commas, write_settings
from interp.system.calls import refuse_misfit
from interp.system.plain_numbers import device_name, dtype_name, path
from interp.system.values import read

if TYPE_CHECKING:
    import torch

    from interp.edits import Edits
    from interp.model import Carrying, Model
    from interp.probe import Probe
    from interp.prompt import Prompts

P = ParamSpec("P")
Options = TypeVar("Options")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Option:
    """The help and the command-line form of an option.

    `kind` is its type on the command line, if not that of the field; `least` and `most` bound a number. `read` converts
    a value of the command line, `write` gives the words for a value, `take` makes any given value plain.
    An option that changes numbers is in a record and its hash; others are `recorded` beside the hash, or never.
    """

    flag: str
    help: str
    short: str = ""
    kind: Any = None
    least: int | None = None
    most: int = MOST
    read: Callable[[Any], Any] = lambda value: value
    write: Callable[[Any], Iterable[str]] = lambda value: (str(value),)
    recorded: Literal["hashed", "beside", "never"] = "hashed"
    take: Callable[[Any], Any] = lambda value: value

    def words(self, value: Any) -> list[str]:
        """The words of a command that set this value."""
        if isinstance(value, bool):
            return [self.flag.split("/")[not value]]
        return [word for written in self.write(value) for word in (self.flag, written)]


@dataclass(frozen=True)
class RunOptions:
    """All options of a run."""

    model: Annotated[
        "Model | str | Path",
        Option(
            "--model",
            "Alias, hub id (@revision), folder, .gguf file, or tunnel:NAME (@step); left out, "
            "tunnel:bijection-gpt-neox. `interp run` takes several (repeat or commas).",
            "-m",
            list[str],
        ),
    ] = "tunnel:bijection-gpt-neox"
    _: KW_ONLY
    probes: Annotated[
        "str | Probe | Sequence[str | Probe]",
        Option(
            "--probe",
            "Probe to run; repeat or use commas. `all`: every observational probe; `everything`: the causal ones too.",
            "-p",
            list[str],
            read=split_commas, write=list,
        ),
    ] = ("manifold",)  # fmt: skip
    settings: Annotated[
        Mapping[str, Mapping[str, Any]] | None,
        Option(
            "--set", "Setting of a probe: PROBE.field=value; repeat for more. In Python {PROBE: {field: value}}.",
            kind=list[str], write=write_settings,
        ),
    ] = None  # fmt: skip
    prompts: Annotated[
        "Prompts | None",
        Option(
            "--prompts",
            "Prompt set, .jsonl/.csv/.tsv/.parquet/.txt file, `-` for a pipe, hf:PATH:CONFIG:SPLIT:COLUMN; in Python "
            "also texts. Not for tunnels. `interp run` takes several (repeat or commas): a run on each.",
            kind=list[str],
        ),
    ] = None
    revision: Annotated[str | None, Option("--revision", "Revision of the hub model, such as step1000.")] = None
    gguf: Annotated[
        str | None,
        Option("--gguf", "GGUF file in the model's folder or repository (--model FILE.gguf names one itself)."),
    ] = None
    adapter: Annotated[
        str | None, Option("--adapter", "Folder or hub id of a LoRA adapter, merged into the weights first.")
    ] = None
    dtype: Annotated[
        "str | torch.dtype | None",
        Option("--dtype", "float32 (default if it fits), bfloat16, float16, float64.", kind=str, take=dtype_name),
    ] = None
    n_pool: Annotated[int | None, Option("--n-pool", "How many prompts (of a tunnel: sequences) to read.", least=1)] = (
        None
    )
    per_quintile: Annotated[
        int | None,
        Option(
            "--draw",
            "Prompts of each fifth of next-token entropy that some probes use; 0 (None in Python): all prompts.",
            kind=int, least=0, write=lambda n: (str(n or 0),),
            take=lambda n: n or None,
        ),
    ] = 15  # fmt: skip
    window: Annotated[int | None, Option("--window", "Read the last N tokens of each text (0: all).", least=0)] = None
    seed: Annotated[int, Option("--seed", "Seed of everything that is random.", least=0, most=LARGEST_SEED)] = 0
    text_column: Annotated[str, Option("--text-column", "Column of the file or data set that holds the text.")] = "text"
    cluster: Annotated[
        str | None,
        Option(
            "--cluster",
            "Column that says which prompts belong together (a document, a template), or `none`; without it the column "
            "`cluster` or `document`, else shared wording.",
        ),
    ] = None
    chat: Annotated[
        bool, Option("--chat/--no-chat", "Read every text as a user's message, through the model's chat template.")
    ] = False
    bos: Annotated[bool, Option("--bos/--no-bos", "Keep the token that the tokenizer puts in front of a text.")] = True
    attention_window: Annotated[
        int | None, Option("--attention-window", "Let every query see the last N keys only.", least=1)
    ] = None
    null: Annotated[
        Literal["untrained"] | None, Option("--null", "Repeat everything on untrained weights, as the null.")
    ] = None
    n_untrained: Annotated[
        int, Option("--n-untrained", "Sets of untrained weights; one alone gives no band.", least=1)
    ] = 3
    edits: Annotated["Edits", Option("--edit", "Edit the model as this JSON file says.", kind=Path)] = ()
    lens: Annotated[
        "Carrying | str | Path | None",
        Option(
            "--lens",
            "File of the lens that decodes the residual stream (`interp lens fit`); left out, the logit lens.",
            kind=Path,
        ),
    ] = None
    checkpoints: Annotated[
        Sequence[str],
        Option(
            "--checkpoints", "Steps, revisions or folders with commas, for probes that follow a training.",
            kind=str, read=split_commas, write=lambda names: (",".join(names),),
            take=lambda names: tuple(map(str, names if isinstance(names, Iterable) else [names])),
        ),
    ] = ()  # fmt: skip
    device: Annotated[
        "str | torch.device | int | None",
        Option(
            "--device",
            "cpu, cuda, cuda:1 or mps; left out, cuda if there is one, else cpu.",
            kind=str,
            recorded="never",
            take=device_name,
        ),
    ] = None
    device_map: Annotated[
        str | Mapping[str, int | str] | None,
        Option("--device-map", "`auto` spreads a large model over devices.", kind=str, recorded="never"),
    ] = None
    batch_size: Annotated[
        int | None,
        Option(
            "--batch-size", "Sequences in a forward pass, at most; left out, 2,048 tokens.", least=1, recorded="never"
        ),
    ] = None
    trust_remote_code: Annotated[
        bool,
        Option(
            "--trust-remote-code",
            "Run the Python code that comes with the model, with your rights. Read it first and name a @revision.",
            recorded="never",
        ),
    ] = False
    allow_pickle: Annotated[
        bool,
        Option(
            "--allow-pickle",
            "Read pickled weights. A pickle can run code hidden in it, with your rights: only for sources you trust.",
            recorded="never",
        ),
    ] = False
    allow_quantised: Annotated[
        bool, Option("--allow-quantised", "Measure quantised weights, rounded as they are.", recorded="beside")
    ] = False
    check: Annotated[
        bool, Option("--check", "Run the self-check again, even if these files passed it before.", recorded="never")
    ] = False
    out: Annotated[
        str | Path | None,
        Option("--out", "Folder that receives the folder of the run.", "-o", kind=Path, recorded="never", take=path),
    ] = "runs"
    show_tokens: Annotated[
        Sequence[int],
        Option(
            "--show-tokens", "Prompts that the page shows token by token, by number with commas (0 is the first).",
            kind=str,
            read=lambda words: read("--show-tokens", tuple[int, ...], words),
            write=lambda chosen: (",".join(map(str, chosen)),), recorded="never",
        ),
    ] = ()  # fmt: skip
    report: Annotated[bool, Option("--report/--no-report", "Draw the page of the record.", recorded="never")] = True
    quiet: Annotated[bool, Option("--quiet", "Print only the path of the report.", "-q", recorded="never")] = False

    def __post_init__(self) -> None:
        for field in fields(RunOptions):
            hint, option = get_args(field.type)
            value = getattr(self, field.name)
            if value is None or value is field.default:
                continue
            value = option.read(value) if isinstance(value, str) and get_origin(hint) is Sequence else value
            value = option.take(read(field.name, hint, value))
            object.__setattr__(self, field.name, value)
            if option.least is not None and type(value) is int:
                refuse_number(f"{option.flag} {value}", value, option.least, option.most)
        if self.null is None and self.n_untrained != RunOptions.n_untrained:
            found = "nothing is repeated on untrained weights"
            fix = "Add --null untrained (null='untrained'), or leave it out."
            raise UsageError(asked=f"n_untrained = {self.n_untrained}", found=found, fix=fix)


OPTIONS: Mapping[str, Option] = {f.name: get_args(f.type)[1] for f in fields(RunOptions)}
"""The options of a run by keyword."""

HASHED = tuple(name for name, option in OPTIONS.items() if option.recorded == "hashed")
"""The options that change the numbers."""

BESIDE = ("command", *(name for name, option in OPTIONS.items() if option.recorded == "beside"))
"""What a record keeps although it changes no number: the command, and some options."""


def by_keyword(kind: Callable[P, Options]) -> Callable[[Callable[[Options], Result]], Callable[P, Result]]:
    """Call a function of an options object with the fields of the object; its docstring gets their help."""

    def decorate(function: Callable[[Options], Result]) -> Callable[P, Result]:
        shown = [each.replace(annotation=_shown(each.annotation)) for each in signature(kind).parameters.values()]
        taken = Signature(shown, return_annotation=signature(function).return_annotation)

        @wraps(function)
        def called(*args: P.args, **keywords: P.kwargs) -> Result:
            refuse_misfit(f"interp.{function.__name__}", taken, args, keywords)
            return function(kind(*args, **keywords))

        helps = (f"        {f.name}: {get_args(f.type)[1].help}" for f in fields(kind))  # pyrefly: ignore[bad-argument-type]
        before, returns, behind = (function.__doc__ or "").partition("    Returns:\n")
        called.__doc__ = "\n".join([f"{before}    Args:", *helps, "", f"{returns}{behind}"])
        called.__dict__["__signature__"] = taken
        return called

    return decorate


def _shown(annotation: Any) -> Any:
    inner = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    return getattr(inner, "__forward_arg__", inner)
