"""`interp lens`: fit, show. Heavy modules are imported inside the commands."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import interp
from interp.cli.options import MODEL, option, with_run_options
from interp.formatting import short
from interp.options import RunOptions

if TYPE_CHECKING:
    from interp.model import Model
    from interp.statistics.intervals import TMean

app = typer.Typer(
    help="Lenses: what the residual stream predicts at each depth.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
_READ = (*MODEL, "prompts", "n_pool", "window", "seed")
_SHOWN = 8
"""Positions of a prompt that a terminal shows: the last ones."""


@app.command(epilog="Example: interp lens fit --model smollm2-135m --kind jacobian --minutes 15")
@with_run_options(_READ)
def fit(
    asked: RunOptions,
    kind: Annotated[
        Literal["jacobian", "tuned"], typer.Option(help="jacobian: the mean derivative; tuned: a trained map.")
    ] = "jacobian",
    precision: Annotated[
        float, typer.Option(help="Stop at this standard error of the KL, in bits; 0: exact.", min=0)
    ] = 0.05,
    minutes: Annotated[float | None, typer.Option(help="Stop after this many minutes.", min=0)] = None,
    skip_first: Annotated[
        int | None, typer.Option(help="First positions of each prompt to leave out; 16 for texts.", min=0)
    ] = None,
    horizon: Annotated[
        int, typer.Option(help="How far ahead of a position its targets begin (slow from 1 on).", min=0)
    ] = 0,
    out: Annotated[Path, typer.Option(help="File of the lens; .pt gives a torch archive.")] = Path("lens.safetensors"),
    quiet: Annotated[bool, option("quiet", help="Print only the path of the lens.")] = False,
) -> None:
    """Fit a lens and write it. The same command resumes an interrupted fit."""
    from interp.lens.fit import fit_bytes
    from interp.loading.load import load_as_asked
    from interp.system.progress import announce

    model = load_as_asked(asked)
    graph, sums = (f"{n / 1e6:,.0f} MB" for n in fit_bytes(model))
    announce(f"beside the weights: about {graph} for the graph of a batch, {sums} for what is fitted", quiet)
    lens = interp.fit_lens(
        model, asked.prompts, kind, n_pool=asked.n_pool, window=asked.window, precision_bits=precision,
        seconds=None if minutes is None else 60 * minutes, skip_first=skip_first, horizon=horizon, seed=asked.seed,
        out=out, quiet=quiet,
    )  # fmt: skip
    interp.save_lens(lens, out)
    if not quiet:
        _show(model, asked, [lens], 0, skip_first)
        worst = max(lens.error_bits.values(), default=None)
        if worst is not None:
            print(f"fitted on {lens.n_prompts} prompts; standard error at most {worst:.3f} bits")
    print(out)


@app.command(epilog="Example: interp lens show lens.safetensors --model smollm2-135m")
@with_run_options(_READ)
def show(
    asked: RunOptions,
    files: Annotated[list[Path], typer.Argument(help="Files of lenses of this model.")],
    strip: Annotated[int, typer.Option(help="Prompt to show token by token, counted from 0.", min=0)] = 0,
    skip_first: Annotated[int | None, typer.Option(help="The same as in the fit.", min=0)] = None,
) -> None:
    """Compare lenses with the logit lens and the final prediction, depth by depth, and show one prompt."""
    from interp.loading.load import load_as_asked

    model = load_as_asked(asked)
    _show(model, asked, [interp.open_lens(file, model) for file in files], strip, skip_first)


def _show(model: "Model", asked: RunOptions, fitted: list, prompt: int, skip_first: int | None) -> None:
    """All lenses and the logit lens by depth on held-out prompts, and their predictions for one prompt."""
    from interp.cli.terminal import show_notes, show_table
    from interp.lens.fit import fit_prompts
    from interp.lens.kinds import FittedLens
    from interp.lens.show import depth_strip, kl_by_depth, writer
    from interp.need import Need
    from interp.prompting.tokens import words_of
    from interp.reading.readable import first_lacking
    from interp.running.show_tokens import refuse_unknown_prompt

    read = fit_prompts(model, asked, skip_first)
    refuse_unknown_prompt(read.prompts, [prompt])
    lenses = {"logit": FittedLens.logit(model)} | {f"{i} {lens.kind}": lens for i, lens in enumerate(fitted, 1)}
    for lens in fitted:
        lens.on(model)  # refuses one of another shape, and warns of one of other weights
        read.refuse_fitted(lens)
    held = read.held_out(model)
    means, null = zip(*(kl_by_depth(lens, held) for lens in lenses.values()), strict=True)
    columns = [*(map(_interval, mean) for mean in means), *(map(short, other) for other in null[1:])]
    names = [*lenses, *(f"{name}, other depth's" for name in list(lenses)[1:])]
    rows = [list(row) for row in zip(map(str, range(model.info.n_layers)), *columns, strict=True)]
    show_table("KL(final prediction || lens), bits, on prompts held out", ["depth", *names], rows)
    show_notes([f"{len(read.held)} prompts; 95 % t intervals over their clusters"])
    if first_lacking(model, [Need("attn_logit"), Need("mlp_logit")], everywhere=True) is None:
        found = {name: writer(model, lens, read.take(read.held)) for name, lens in lenses.items()}
        written = [[name, block, _interval(mean), f"{share:.0%}"] for name, (block, mean, share) in found.items()]
        show_table("Block that adds most to the predicted token", ["lens", "block", "logits", "most in"], written)
    tokens = words_of(model, read.ids[prompt])[-_SHOWN:]
    for name, lens in lenses.items():
        shown = [[depth, *best[-_SHOWN:]] for depth, best in depth_strip(model, lens, read.ids[prompt]).items()]
        show_table(f"{name} lens: likeliest next token by depth", ["depth", *tokens], shown)


def _interval(mean: "TMean") -> str:
    return f"{short(mean.value)} [{short(mean.low)}, {short(mean.high)}]"
