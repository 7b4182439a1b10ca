"""A record for a paper: figures as PDF, SVG or PNG in the width of a column, numbers as LaTeX or CSV.

kaleido, an extra, draws images through an installed Chrome or Chromium.
"""

import errno
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from interp.errors import UsageError, optional_part
from interp.findings import Findings
from interp.formatting import printable
from interp.records.record import RunRecord
from interp.system.whole_files import file_names, hidden_folder, make_folder, move, telling, writing

if TYPE_CHECKING:
    import plotly.graph_objects as go

FIGURES = ("pdf", "svg", "png")
TABLES = ("latex", "csv")

Columns = Literal[1, 2]

_WIDTH = {1: 3.4, 2: 7.0}
"""Width of a figure in inches, over one or two columns of a paper."""

_DRAWN = 1.5
"""Figures are drawn larger by this factor and reduced, which makes lines and points fine enough for print."""

_PIXELS_AN_INCH = 96 * _DRAWN
_FONT = 8 * _PIXELS_AN_INCH / 72
_PAGE_FONT = 12
_ASPECT = {1: 0.72, 2: 0.5}
_FINER = 3
"""The factor of pixels of a PNG: 288 per inch."""


def export(
    record: RunRecord,
    out: Path,
    figures: Collection[str] = ("svg",),
    tables: Collection[str] = ("csv",),
    columns: Columns = 1,
) -> list[Path]:
    """Write figures and tables of a record into the folder `out`; returns the files.

    `PROBE-FIGURE.pdf` for every figure, wide as one or two `columns` of a paper, in 8 point; of every probe
    `PROBE.tex` (its headline numbers) or `PROBE.csv` (all its numbers), `PROBE-TABLE.csv`, and `PROBE.units.csv` with
    the units of all their columns. Raises `UsageError` for an unknown format, or if kaleido or Chrome is missing;
    `RecordError` if a file of this name exists that no export wrote (`.interp-exported` lists exported ones).
    """
    for what, asked, known in (("figures", figures, FIGURES), ("tables", tables, TABLES)):
        if strange := sorted(set(asked) - set(known)):
            raise UsageError(asked=f"{what} as {strange[0]}", found="it is not known", fix=f"Use {', '.join(known)}.")
    written: dict[Path, str] = {}
    drawn: list[tuple[go.Figure, Path]] = []
    with telling(f"exporting to {out}", "Check free space and permissions there, or choose another folder with --out."):
        make_folder(out)
        for probe, findings in record.findings.items():
            written |= {out / name: text for name, text in _tables(probe, findings, tables)}
            for name, plot in findings.figures().items() if figures else ():
                drawn += [(_sized(plot, columns), out / f"{probe}-{name}.{ending}") for ending in figures]
        paths = [*written, *(path for _, path in drawn)]
        _claim(paths, out)
        for path, text in written.items():
            with writing(path) as draft:
                draft.write_text(text, encoding="utf-8", newline="")
        for ending in figures:
            _draw([(plot, path) for plot, path in drawn if path.suffix == f".{ending}"])
    return paths


def _claim(paths: Collection[Path], out: Path) -> None:
    """List files as exported, before they are written; `FileExistsError` if one exists and is not ours."""
    noted = out / ".interp-exported"
    ours = set(noted.read_text(encoding="utf-8").splitlines()) if noted.is_file() else set()
    for path in paths:
        if path.exists() and path.name not in ours:
            raise FileExistsError(errno.EEXIST, "no export wrote the file of this name; move it away", str(path))
    with writing(noted) as draft:
        draft.write_text("\n".join(sorted(ours | {path.name for path in paths})) + "\n", encoding="utf-8")


def _tables(probe: str, findings: Findings, kinds: Collection[str]) -> Iterator[tuple[str, str]]:
    if "latex" in kinds and findings.scalars:
        yield f"{probe}.tex", findings.to_latex()
    if "csv" in kinds:
        from pandas import DataFrame

        frames = {probe: findings.to_frame()} if findings.scalars else {}
        files = file_names(findings.tables)
        frames |= {f"{probe}-{files[name]}": table.to_frame() for name, table in findings.tables.items()}
        units = [(f"{probe}-{files[name]}.csv", *of) for name, t in findings.tables.items() for of in t.units.items()]
        frames |= {f"{probe}.units": DataFrame(units, columns=["file", "column", "unit"])} if units else {}
        for name, frame in frames.items():
            shown = frame.map(lambda x: printable(x) if isinstance(x, str) else x)
            yield f"{name}.csv", shown.rename(columns=lambda of: printable(str(of))).to_csv(index=False)


def _sized(plot: "go.Figure", columns: Columns) -> "go.Figure":
    """The figure in white, 8 point, as wide as the columns, without title, sliders and menus."""
    width = _WIDTH[columns] * _PIXELS_AN_INCH
    n_rows = max(1, len({axis.domain for axis in plot.select_yaxes()}))
    height = width * _ASPECT[columns] * (1 + 0.6 * (n_rows - 1))
    layout: Any = plot.layout
    if layout.yaxis.visible is False:  # rows of words, which are as high as these
        height = layout.height * _FONT / _PAGE_FONT
    plot.update_layout(
        width=width, height=height, title=None, paper_bgcolor="white",
        plot_bgcolor="white", font_size=_FONT, legend_font_size=_FONT, margin={"l": 8, "r": 8, "t": 24, "b": 8},
    )  # fmt: skip
    plot.layout.sliders = plot.layout.updatemenus = None
    for axes in (plot.update_xaxes, plot.update_yaxes):
        axes(title_font_size=_FONT, tickfont_size=_FONT)
    plot.update_annotations(font_size=_FONT)
    plot.update_coloraxes(colorbar_tickfont_size=_FONT, colorbar_title_font_size=_FONT)
    return plot


def _draw(drawn: "list[tuple[go.Figure, Path]]") -> None:
    if not drawn:
        return
    import plotly.io

    plots, paths = map(list, zip(*drawn, strict=True))
    scale = (_FINER if paths[0].suffix == ".png" else 1) / _DRAWN
    sizes = {side: [plot.layout[side] for plot in plots] for side in ("width", "height")}
    try:
        with optional_part("export", "figures as images"), hidden_folder(paths[0].parent) as folder:
            # kaleido takes a name without an ending for that of a folder
            drafts: list[Path | str] = [folder / path.name for path in paths]
            plotly.io.write_images(plots, drafts, format=paths[0].suffix[1:], scale=scale, **sizes)
            for path in paths:
                move(folder / path.name, path)
    except (RuntimeError, ValueError) as error:
        raise UsageError(
            asked="figures as images",
            found=f"kaleido cannot draw them: {' '.join(str(error).split())[:200]}",
            fix="It needs Chrome or Chromium: install one, or name it in the environment variable BROWSER_PATH.",
        ) from error
