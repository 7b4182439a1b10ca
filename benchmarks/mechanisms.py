"""Methods scored on programs with a known mechanism: idle heads, depths, directions, false discoveries, time.

    python -m benchmarks.mechanisms                       # missing measurements, then the table
    python -m benchmarks.mechanisms --programs chain,hist # in several processes, side by side
    python -m benchmarks.mechanisms --table               # the table alone

Scores are kept in `mechanisms.jsonl` and not measured again. A line is a method on a program under a condition: for
every question how many were right (or significant), out of how many, and CPU seconds.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
SCORES, README = HERE / "mechanisms.jsonl", HERE / "README.md"
START, END = "<!-- mechanisms -->\n", "<!-- /mechanisms -->"
METHODS = {
    "interp": ("by_interp", "ByInterp"), "TransformerLens": ("by_transformer_lens", "ByTransformerLens"),
    "nnsight": ("by_nnsight", "ByNnsight"), "scikit-learn": ("by_probing", "ByProbing"),
    "CAE": ("by_abstraction_error", "ByAbstractionError"), "chance": ("by_chance", "ByChance"),
}  # fmt: skip
CONDITIONS = {
    "as compiled": {},
    "rotated, distractors, noise": {"rotate": True, "n_distractors": 1, "weight_noise": 0.0005},
    "a dimension too few": {"n_too_few": 1},
}
QUESTIONS = {
    "heads": "heads right", "depth": "depth right", "directions": "swap right", "inert": "inert called",
    "active": "active called",
}  # fmt: skip
ANSWERS_RIGHT = 0.9
"""Share of right answers below which a program under noise no longer has the mechanism of its card."""
N_VARIABLES, N_DIRECTIONS = 2, 2

Score = Mapping[str, Any]


def noise_of(program: str, condition: str, seed: int) -> Any:
    """The noise of a condition; superposition has fewer dimensions than the program has directions."""
    from interp.wind_tunnels.programs.noise import Noise
    from interp.wind_tunnels.programs.task import read_program

    given = dict(CONDITIONS[condition])
    missing = given.pop("n_too_few", 0)
    if missing:
        given["n_dimensions"] = len(read_program(program)["labels"]) - missing
    return Noise(**given, seed=seed)


def scores_of(case: Any, method: Any, has_directions: bool) -> Iterator[tuple[str, float, int, float]]:
    """Question, how many were right (or significant), out of how many, CPU seconds."""
    mechanism = case.model.mechanism
    card = mechanism.card
    rng = np.random.default_rng([case.noise.seed, 13])
    chosen = rng.permutation(case.variables)[:N_VARIABLES].tolist()
    idle = {tuple(place) for place in (*card["idle_heads"], *card.get("distractor_heads", ()))}
    used, seconds = _timed(method.used_heads, case)
    yield "heads", sum((place in used) != (place in idle) for place in case.heads), len(case.heads), seconds
    if chosen and hasattr(method, "depth_of"):
        found = [_timed(method.depth_of, case, name) for name in chosen]
        right = sum(depth == mechanism.first_depth(name) for (depth, _), name in zip(found, chosen, strict=True))
        yield "depth", right, len(chosen), sum(seconds for _, seconds in found)
    if chosen and hasattr(method, "directions"):
        from .mechanism_methods.case import orthonormal

        total, seconds, fresh = 0.0, 0.0, case.redrawn()
        for name in chosen:
            depth = mechanism.first_depth(name)
            frame, one = _timed(method.directions, case, name, depth)
            total, seconds = total + fresh.interchange_accuracy(orthonormal(frame), name, depth), seconds + one
        yield "directions", total, len(chosen), seconds
    if has_directions and hasattr(method, "matters"):
        for kind, places in labelled_directions(case, rng).items():
            called = [_timed(method.matters, case, mechanism.written[label].astype(float), depth)
                      for label, depth in places]  # fmt: skip
            if called:
                yield kind, sum(bool(was) for was, _ in called), len(called), sum(seconds for _, seconds in called)


def labelled_directions(case: Any, rng: np.random.Generator) -> dict[str, list[tuple[int, int]]]:
    """Labels of the card with a depth: inert ones, which nothing reads there, and those whose swap moves answers."""
    mechanism = case.model.mechanism
    owner = {label: name for name, mine in mechanism.directions.items() for label in _labels_of(mechanism, name)}
    inert, active = [], []
    for depth in range(1, case.n_layers + 1):
        spread = (case.scored_stream(depth).reshape(-1, case.model.info.d_model) @ mechanism.written.T).std(axis=0)
        for label, text in enumerate(mechanism.card["labels"]):
            name = owner.get(label)
            if spread[label] < 0.1 or (name is None and not text.startswith("unread:")):
                continue
            if name is None or (mechanism.first_depth(name) <= depth and not mechanism.is_read(name, depth)):
                inert.append((label, depth))
            elif mechanism.first_depth(name) <= depth:
                active.append((label, depth))
    inert = [inert[i] for i in rng.permutation(len(inert))[:N_DIRECTIONS]]
    moving = (place for i in rng.permutation(len(active)) if _moves(case, *(place := active[i])))
    return {"inert": inert, "active": [place for place, _ in zip(moving, range(N_DIRECTIONS), strict=False)]}


def measure(programs: Sequence[str], seed: int, path: Path = SCORES) -> None:
    """Measure what `path` lacks, one line per score."""
    os.environ["TQDM_DISABLE"] = "1"
    from .mechanism_methods.case import Case

    done = {(s["method"], s["program"], s["condition"], s["seed"]) for s in read_scores(path)}
    for program in programs:
        for condition in CONDITIONS:
            missing = [m for m in METHODS if (m, program, condition, seed) not in done]
            if not missing:
                continue
            case = Case.of(program, noise_of(program, condition, seed))
            right = float((case.log_probs().argmax(-1).numpy() == case.answers).mean())
            for name in missing:
                line = {"method": name, "program": program, "condition": condition, "seed": seed, "answers": right}
                if right >= ANSWERS_RIGHT:
                    found = scores_of(case, _method(name), "n_too_few" not in CONDITIONS[condition])
                    line["scores"] = {q: [round(float(value), 4), n, round(cpu, 3)] for q, value, n, cpu in found}
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                print(program, condition, name, flush=True)


def read_scores(path: Path = SCORES) -> list[Score]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def table(scores: Sequence[Score]) -> str:
    """A Markdown table by condition and method: means over programs with 95 % bootstrap intervals."""
    lines = [f"| Programs | Method | {' | '.join(QUESTIONS.values())} | CPU s |", "|---|---|" + "---:|" * 6]
    for condition in CONDITIONS:
        kept = [s for s in scores if s["condition"] == condition and "scores" in s]
        programs = sorted({s["program"] for s in kept})
        for method in METHODS:
            mine = [[s["scores"] for s in kept if (s["method"], s["program"]) == (method, p)] for p in programs]
            if not any(mine):
                continue
            cells = [_cell([_share(of_program, question) for of_program in mine]) for question in QUESTIONS]
            seconds = np.mean([sum(cpu for s in of_program for _, _, cpu in s.values()) / max(1, len(of_program))
                               for of_program in mine])  # fmt: skip
            lines.append(f"| {condition} ({len(programs)}) | {method} | {' | '.join(cells)} | {seconds:.1f} |")
    return "\n".join(lines) + "\n"


def _share(scores: Sequence[Mapping[str, Sequence[float]]], question: str) -> float:
    """The share that was right, or significant, for one program over its seeds."""
    mine = [s[question] for s in scores if question in s]
    return sum(right for right, _, _ in mine) / sum(n for _, n, _ in mine) if mine else np.nan


def _cell(shares: Sequence[float]) -> str:
    values = np.array([share for share in shares if not np.isnan(share)])
    if not len(values):
        return "-"
    drawn = values[np.random.default_rng(0).integers(0, len(values), (2000, len(values)))].mean(axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return f"{values.mean():.2f} [{low:.2f}, {high:.2f}]"


def _moves(case: Any, label: int, depth: int) -> bool:
    unit = case.model.mechanism.written[label] / np.linalg.norm(case.model.mechanism.written[label])
    answered = case.log_probs([(depth, case.swap(unit[None], depth))]).argmax(-1).numpy()
    return float((answered != case.answers).mean()) >= 0.05


def _labels_of(mechanism: Any, variable: str) -> list[int]:
    return list(mechanism.card["directions"][variable])


def _method(name: str) -> Any:
    import importlib

    module, kind = METHODS[name]
    return getattr(importlib.import_module(f"{__package__}.mechanism_methods.{module}"), kind)()


def _timed(call: Callable[..., Any], *args: Any) -> tuple[Any, float]:
    start = time.process_time()
    return call(*args), time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default="", help="names, separated by commas; all by default")
    parser.add_argument("--seeds", default="1,2", help="of noise and sequences, separated by commas")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    asked = parser.parse_args()
    if not asked.table:
        from interp.loading.sources import shipped_programs

        for seed in map(int, asked.seeds.split(",")):
            measure(asked.programs.split(",") if asked.programs else list(shipped_programs()), seed)
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(START)
    README.write_text(before + START + table(read_scores()) + END + rest.split(END)[1], encoding="utf-8")
    print(table(read_scores()))


if __name__ == "__main__":
    main()
