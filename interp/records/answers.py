"""The answer of every probe in one sentence: what the terminal, the notebook and the page say first.

A probe declares its sentences (`interp.Sentences`). Here one is chosen by where the number stands to its null, its
controls are said in it, and all stand in the order of their questions: none is picked by its p or its size.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from interp.errors import InterpError
from interp.findings import Findings, Scalar
from interp.formatting import DASH, near_zero_as_zero, p_equals, short, short_name, with_unit
from interp.probe import Question, Sentences
from interp.records.headlines import Headline, headlines
from interp.records.labels import clause
from interp.records.power import detectable
from interp.records.record import RunRecord
from interp.registry import entries, load_entry

Verdict = Literal["yes", "partly", "no", "unshown", "opposite", "depends", "unclear", "number"]
SAID: Mapping[Verdict, str] = {
    "yes": "Yes.", "partly": "Partly.", "no": "No.", "unshown": "Not shown.", "opposite": "No, the opposite.",
    "depends": "It depends.", "unclear": "Cannot tell.", "number": "",
}  # fmt: skip
"""A verdict as it opens its sentence; a number whose probe declares no question has none. An answer depends where a
control puts the number on the other side of its null. Something is not shown, and not denied, where the number lies
more than half as far from its null as what would be found 80 % of the time."""

_SITES = {"v": "the values of", "z": "the head outputs of", "resid": "the residual stream at"}
_LAST = 1_000  # the place of what declares no question
_ALL = (0.8, 1.25)  # of what a share of variance can be, with the room that slopes and skills have
_LEAST_BITS, _NOTHING = 1e-4, ", practically nothing"


@dataclass(frozen=True)
class Answer:
    """A question with its answer.

    `evidence` holds interval, baseline, p and n of the number; `change`, what would change the answer or is not shown.
    """

    question: str
    verdict: Verdict
    sentence: str
    change: str
    headline: Headline

    @property
    def said(self) -> str:
        """The verdict and the sentence."""
        return f"{SAID[self.verdict]} {self.sentence}".strip()

    @property
    def evidence(self) -> str:
        """`95 % interval 0.32 to 0.33; baseline 0.14 (0.13 to 0.15), labels shuffled; p = 0.004; 300 prompts`."""
        s, p = self.headline.scalar, self.headline.p_together
        interval = f"95 % interval {s.interval_text}" if s.interval else "no interval"
        baseline = f"baseline {_null(s)}, {s.null.name}" if s.null else f"no baseline: {s.null_reason}"
        least = " (the smallest possible here)" if s.is_p_least else ""
        likely = "" if p is None else p_equals(p, s.is_p_least) + least
        return "; ".join(part for part in (interval, baseline, likely, s.n_text) if part)


class _Values(dict[str, str]):
    """What a sentence may name; a number that was not found is a dash."""

    def __missing__(self, name: str) -> str:
        return DASH


def answers(record: RunRecord, model: str = "") -> tuple[Answer, ...]:
    """Every probe's answers, in the order of the questions; a probe that declares none has its headline numbers.

    `model` is what the model is called in them, by default its name.
    """
    judged = headlines(record.findings)
    model = model or short_name(str(record.model.get("name") or "the model"))
    found: list[tuple[int, Answer]] = []
    for probe, findings in record.findings.items():
        mine = [h for h in judged if h.probe == probe]
        parameters, n_layers = record.parameters.get(probe, {}), record.model.get("n_layers") or 0
        unit = str(record.prompts.get("unit") or "prompt")
        said = [*_declared(findings, mine, parameters, model, n_layers, unit)]
        found += said or [(_LAST, number(h)) for h in mine]
    return tuple(answer for _, answer in sorted(found, key=lambda each: each[0]))


def settled(found: Sequence[Answer]) -> tuple[Answer, ...]:
    """The answers that say something."""
    return tuple(answer for answer in found if answer.verdict != "unclear")


def unclear(found: Sequence[Answer]) -> str:
    """The questions that cannot be told, each with the reason, in one line; empty where there is none."""
    open_ones = [f"{a.question} {_opened(a.sentence)}" for a in found if a.verdict == "unclear"]
    return f"Cannot tell: {' '.join(open_ones)}" if open_ones else ""


def number(h: Headline) -> Answer:
    """A headline number by its meaning, where no question is declared."""
    s = h.scalar
    value = with_unit(short(s.value), s.unit)
    change = "" if h.standing != "unjudged" else f"Not tested: {_why(s)}."
    return Answer(clause(h.name, s.meaning), "number", f"{value}, {h.verdict}.", change, h)


def _declared(
    findings: Findings, judged: Sequence[Headline], parameters: Mapping[str, Any], model: str, n_layers: int, unit: str
) -> Iterator[tuple[int, Answer]]:
    """The answers that a probe declares: of each question the first whose number is a headline."""
    cls = _class_of(findings.probe)
    usual = {} if cls is None else {f.name: f.default for f in fields(cls)}
    column, asked = parameters.get("target", usual.get("target")), set()
    for said in cls.sentences if cls else ():
        names = {name.format(column=column) for name in said.numbers}
        h = next((h for h in judged if h.name in names), None)
        if h is not None and said.question not in asked:
            asked.add(said.question)
            target = said.target if column == usual.get("target") else f"“{column}”"
            words = {"model": model, "target": target, "place": _place(parameters, n_layers), "unit": unit}
            yield said.order, _answer(said, h, findings, words)


def numbers_of(probe: str) -> set[str]:
    """The names of the numbers that answer a probe's questions."""
    cls = _class_of(probe)
    return {name for said in cls.sentences for name in said.numbers} if cls else set()


def _place(parameters: Mapping[str, Any], n_layers: int) -> str:
    """`the values of the last layer`: what a probe read by its own parameters; of several sites the first."""
    site = parameters.get("site") or next(iter(parameters.get("sites", ())), "")
    layers = parameters["layers"][0] if parameters.get("layers") else [parameters.get("layer", -1)]
    last, one = (n_layers, "depth") if site == "resid" else (n_layers - 1, "layer")
    counted = [layer + last + 1 if isinstance(layer, int) and layer < 0 else layer for layer in layers]
    of_values = "" if site == "resid" else ", counted from 0"
    whole = {last: f"the last layer ({one} {last}{of_values})", "middle": "the middle layer", "all": "all layers"}
    named = [whole.get(layer, f"{one} {layer}") for layer in counted]
    return f"{_SITES.get(site, 'the activations of')} {' and '.join(named)}"


def _class_of(probe: str) -> type[Question] | None:
    """The probe as it is installed; None where a record outlived it."""
    try:
        return next((load_entry(kind, probe) for kind in ("probe", "study") if probe in entries(kind)), None)
    except InterpError:  # the page says beside its numbers that this probe cannot be imported
        return None


def _answer(said: Sentences, h: Headline, findings: Findings, words: Mapping[str, str]) -> Answer:
    values = _Values({name: _value(s) + _NOTHING * _is_nothing(s) for name, s in findings.scalars.items()})
    values.update(words, value=_value(h.scalar), size=_size(h.scalar), fact=findings.facts.get(h.name, ""))
    values["null"] = DASH if h.scalar.null is None else short(near_zero_as_zero(h.scalar.null.value))
    values["n"] = DASH if h.scalar.n is None else f"{h.scalar.n:,}"
    verdict = _verdict(said, h)
    if h.objections:
        sentence = f"{said.yes.format_map(values)} But this {' and '.join(h.objections)}."
    elif verdict == "unclear":
        sentence = f"{_why(h.scalar)}."
    else:
        chosen = {said.expected: said.yes, "within": said.no}.get(h.standing) or said.opposite or said.no
        sentence = _with_twins(_conditioned(chosen.format_map(values), h), h)
    return Answer(said.question.format_map(values), verdict, sentence, _change(said, h, verdict), h)


def _verdict(said: Sentences, h: Headline) -> Verdict:
    if h.objections or h.standing == "unjudged":
        return "unclear"
    if h.standing == "within":
        effect = _least(said, h.scalar)
        return "unshown" if effect is not None and 2 * _beyond_null(said, h.scalar) > effect else "no"
    if any(_is_reversed(h, s) for _, s in h.controls):
        return "depends"
    if h.standing != said.expected:
        return "opposite"
    return "partly" if _missed(said, h.scalar) else "yes"


def _missed(said: Sentences, s: Scalar) -> str:
    """`below 0.8`: where the whole interval lies beside what a full yes needs, of a share of variance all of it."""
    full = said.full or (_ALL if _is_share(s) else None)
    if full is None or s.interval is None or (s.interval[0] <= full[1] and s.interval[1] >= full[0]):
        return ""
    return f"below {full[0]:g}" if s.interval[1] < full[0] else f"above {full[1]:g}"


def _is_share(s: Scalar) -> bool:
    return s.meaning.lower().startswith(("share of the variance", "held-out r²"))


def _is_reversed(h: Headline, twin: Scalar) -> bool:
    """Whether a control puts the number on the other side of its null, significantly or not."""
    standing = twin.standing()
    if standing == "within" and h.standing != "within" and twin.null is not None:
        standing = "above" if twin.value > twin.null.value else "below"
    return standing in {"above", "below"} - {h.standing}


def _conditioned(sentence: str, h: Headline) -> str:
    """The sentence with what a number leaves out, where its twin counts it."""
    return f"Without the first position, {sentence[:1].lower()}{sentence[1:]}" if "_no_first" in h.name else sentence


def _with_twins(sentence: str, h: Headline) -> str:
    """The same with the number as its controls give it, and a "but" before one on the other side of its null."""
    twins = []
    for control, s in h.controls:
        turned = h.standing != "within" and s.value * h.scalar.value < 0
        said = f"{_size(s)} in the opposite direction" if turned else _value(s)
        beyond = control.words.removeprefix("beyond ")  # such a share is one of what is left
        words = f"of what {beyond} leaves open" if _is_share(s) and beyond != control.words else control.words
        twins.append(f"{'but ' if _is_reversed(h, s) else ''}{words}: {said}")
    return f"{sentence.removesuffix('.')} ({'; '.join(twins)})." if twins else sentence


def _change(said: Sentences, h: Headline, verdict: Verdict) -> str:
    """What would change the answer: more prompts, a control that failed; of a yes, what it does not show."""
    s = h.scalar
    if h.objections:
        return "If that control agreed, the answer would be yes."
    if s.underpowered:
        return f"More {s.n_unit}s may decide it" + (f": {s.enough:,} are enough." if s.enough else ".")
    least = _least(said, s) if verdict in ("no", "unshown") else None
    if least is not None:
        return (
            f"A difference of {with_unit(short(least), s.unit)} from the baseline would be found 80 % of the time, "
            f"a smaller one with more {s.n_unit}s."
        )
    missed = f"“Partly”: beyond the baseline, but the interval lies {_missed(said, s)}, which a “Yes” needs to reach. "
    return f"{missed * (verdict == 'partly')}{said.limit}".strip() if verdict in ("yes", "partly") else ""


def _least(said: Sentences, s: Scalar) -> float | None:
    """The smallest effect in the expected direction that would be found 80 % of the time; None where it is unknown."""
    effect = detectable(s)
    return None if effect is None else effect.above if said.expected == "above" else effect.below


def _beyond_null(said: Sentences, s: Scalar) -> float:
    """How far a number lies beyond its null in the expected direction."""
    assert s.null is not None
    return (s.value - s.null.value) * (1 if said.expected == "above" else -1)


def _why(s: Scalar) -> str:
    """Why a number cannot be judged."""
    return s.weakness if s.underpowered else s.null_reason or "it is not a finite number"


def _value(s: Scalar) -> str:
    return with_unit(short(s.value), s.unit)


def _is_nothing(s: Scalar) -> bool:
    """Whether an effect is too small to matter to a prediction, however sure it is."""
    return s.unit == "bits" and 0 < abs(s.value) < _LEAST_BITS


def _size(s: Scalar) -> str:
    return with_unit(short(abs(s.value)), s.unit)


def _null(s: Scalar) -> str:
    assert s.null is not None
    value, low, high = (near_zero_as_zero(x) for x in (s.null.value, *s.null.band))
    return short(value) if low == high == value or not np.isfinite([low, high]).all() else s.null_text


def _opened(sentence: str) -> str:
    """A sentence with a capital at its beginning."""
    return sentence[:1].upper() + sentence[1:]
