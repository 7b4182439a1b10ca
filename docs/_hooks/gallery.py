"""The figures of the gallery: drawn by the probes' own code from one run on the shipped tunnel.

The run takes a minute and is kept in `build/` until the code that measures changes.
"""

import hashlib
import html
import json
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROBES = ("all", "belief", "heads", "depth_use", "causal", "dynamics")
SETTINGS = {"causal": {"n_controls": 19}, "belief": {"n_permutations": 60}}
N_POOL = 300
THROUGH_LENS = "workspace"


@cache
def measured(through_lens: bool = False) -> Any:
    """The record of the run; of the probe that reads through a Jacobian lens, a run of its own."""
    import interp

    code = hashlib.sha256()
    for folder in ("interp", "probes", "wind_tunnels"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            code.update(file.read_bytes())
    folder = ROOT / "build" / f"gallery-{code.hexdigest()[:16]}{'-lens' if through_lens else ''}"
    if not folder.exists():
        model, probes, settings = interp.load("tunnel:bijection-gpt-neox"), PROBES, SETTINGS
        if through_lens:
            lens = interp.fit_lens(model, n_pool=100, precision_bits=0.0, quiet=True)
            model, probes, settings = lens.on(model), (THROUGH_LENS,), {}
        interp.run(model, probes=probes, settings=settings, n_pool=N_POOL, per_quintile=None, out=None,
                   quiet=True).write(folder)  # fmt: skip
    return interp.open_run(folder)


def page(probe: str) -> str:
    """Every figure of a probe, with its title, how to read it, and the line that makes it."""
    about = f"What each number is: [the probe {probe}](../reference/probes/{probe}.md)."
    return f"# Figures of {probe}\n\n{about}\n\n" + "\n".join(_figure(probe, name) for name in _drawn(probe))


def one_figure(path: str) -> str:
    """One figure, `probe/name`."""
    return _figure(*path.split("/"))


@cache
def _drawn(probe: str) -> dict[str, Any]:
    from interp.registry import load_entry

    findings = measured(probe == THROUGH_LENS).findings[probe]
    return {figure.name: figure for figure in load_entry("probe", probe)().figures(findings)}


def _figure(probe: str, name: str) -> str:
    figure, findings = _drawn(probe)[name], measured(probe == THROUGH_LENS).findings[probe]
    themes = {theme: json.loads(findings.plot(name, theme).to_json()) for theme in ("light", "dark")}
    return (
        f"\n### {figure.title} {{ #{probe}-{name} }}\n\n{plotly_figure(themes)}\n\n{figure.reading}\n\n"
        f'```python\nrecord.findings["{probe}"].plot("{name}")\n```\n'
    )


def plotly_figure(themes: dict[str, dict[str, Any]], caption: str = "") -> str:
    """A figure on one line of HTML: its data for the light and the dark page, drawn by `assets/figures.js`."""
    for figure in themes.values():
        figure["layout"].pop("title", None)
        figure["layout"] |= {"paper_bgcolor": "rgba(0,0,0,0)", "autosize": True}
        figure["layout"]["margin"] = figure["layout"].get("margin", {}) | {"t": 30}
    data = json.dumps(themes, separators=(",", ":")).replace("<", "\\u003c")
    height = themes["light"]["layout"].get("height") or 420
    words = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return (
        f'<figure class="plotly-figure"><div style="height:{height}px"></div>'
        f'<script type="application/json">{data}</script>{words}</figure>'
    )
