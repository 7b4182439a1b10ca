"""The answer of every probe in one sentence: the first thing that terminal, notebook and page show.

A probe declares its sentences (`interp.Sentences`); the standing of the number chooses among them. Answers come in the
order of their questions, never by p or size.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from interp.findings import ALPHA, Control, Findings, Scalar
from interp.formatting import DASH, MILLIONTHS, is_tiny, near_zero_as_zero, p_equals, short, short_name, with_unit
from interp.probe import Sentences
from interp.records.headlines import Headline, headlines
from interp.records.labels import NO_FIRST, label
from interp.records.power import class_of, detectable
from interp.records.record import RunRecord

Verdict = Literal["yes", "partly", "hardly", "no", "unshown", "opposite", "depends", "unclear", "counted", "number"]
SAID: Mapping[Verdict, str] = {
    "yes": "Yes.", "partly": "Partly.", "hardly": "Hardly.", "no": "No.", "unshown": "Not detected.",
    "opposite": "No, the opposite.", "depends": "It depends.", "unclear": "Cannot tell.", "counted": "", "number": "",
}  # fmt: skip
"""How each verdict opens its sentence. An answer depends if a control puts the number on the other side of its null, or
is significant where the number is not. It is not detected, rather than denied, if the number lies more than half as far
from its null as the effect that would be found 80 % of the time."""

_SITES = {"v": "the attention value vectors of", "z": "the head outputs of", "resid": "the residual stream after"}
_LAST = 1_000  # the place of what declares no question
_ALL = (0.8, 1.25)  # of what a share of variance can be, with the room that slopes and skills have
_HARDLY = 0.1  # of the same: where the whole interval lies below
_ABOVE_0 = 0.05  # of a share of variance
_BEYOND_CONTROLS = "_beyond_controls"  # how a number ends that is the difference from the mean of its controls
_AFFIRMED = ("yes", "partly", "hardly")
_SMALL_BITS = 1e-2
_NOTHING = " (practically nothing)"
_NO_USE = {"no": "No sign of it.", "opposite": "This test cannot tell."}  # a use can be too small, or below controls'
_ENDS = re.compile(r"(?<=\.) ")  # of sentences


@dataclass(frozen=True)
class Answer:
    """A question with its answer.

    `evidence` holds interval, baseline, p and n of the number; `change`, what would change the answer or is not shown;
    `methods`, how p was counted, the controls and what else was measured.
    """

    question: str
    verdict: Verdict
    sentence: str
    change: str
    headline: Headline
    further: str = ""
    """What else was measured, in sentences."""
    is_beside: bool = False
    """Whether the number lies outside its baseline on the side that p does not test: p is then left out."""
    n_read: int = 0
    unit: str = "prompt"
    """The number of prompts of the run, and their unit."""

    @property
    def opening(self) -> str:
        """The verdict, and the essential control beyond which it is undecided."""
        if _is_beyond(self.headline) and self.verdict in _NO_USE:
            return _NO_USE[self.verdict]
        return f"{SAID[self.verdict][:-1]}, but undecided {self.vague[0]}." if self.vague else SAID[self.verdict]

    @property
    def vague(self) -> list[str]:
        """The essential controls beyond which an affirmed verdict is undecided."""
        return _undecided(self.headline) if self.verdict in _AFFIRMED else []

    @property
    def said(self) -> str:
        """The verdict and the sentence."""
        return f"{self.opening} {self.sentence}".strip()

    @property
    def sentences(self) -> list[str]:
        """The sentence, split into sentences."""
        return _ENDS.split(self.sentence)

    @property
    def evidence(self) -> str:
        """`0.3 (95 % interval 0.2 to 0.4); baseline 0.14 (0.13 to 0.15), labels shuffled; p = 0.004; 300 prompts`."""
        s, p = self.headline.scalar, self.headline.p_together
        if self.verdict == "counted":
            return s.n_text
        is_beyond = _is_beyond(self.headline)
        of = "Difference from matched directions " * is_beyond
        interval = f"{of}{s.value_text} (95 % interval {s.interval_text})" if s.interval else f"{of}{s.value_text}"
        if s.null is None:
            baseline = f"no baseline: {s.null_reason}"
        else:
            named = f"baseline {_null(s)}, {s.null.name}{_kept(s)}"
            baseline = f"among matched directions {_null(s)}" if is_beyond else named
        likely = "" if p is None or self.is_beside else p_equals(p, s.is_p_least)
        is_part = s.n is not None and s.n_unit == self.unit and s.n < self.n_read
        counted = f"{s.n:,} of the {self.n_read:,} {self.unit}s" if is_part else s.n_text
        counted += ", on none of which the direction was fitted" * is_beyond
        return "; ".join(part for part in (interval, baseline, likely, counted) if part)

    @property
    def methods(self) -> str:
        """The corrections of p, the controls, and further measurements."""
        s, p = self.headline.scalar, self.headline.p_together
        least = [f"the smallest {_of_draws(s)}"] * s.is_p_least
        how = " and ".join([*least, *["corrected for the other results"] * (p != s.p)])
        counted = f"p is {how}." if how and p is not None and not self.is_beside else ""
        controls = "; ".join(self.headline.controls_in_words)
        held = f"{_begun(controls)}." if controls else ""
        return " ".join(part for part in (counted, held, self.further) if part)


def answers(record: RunRecord, model: str = "", *, every: bool = False) -> tuple[Answer, ...]:
    """Every probe's answers, in the order of the questions; of a probe without questions its headline numbers.

    `model` replaces the model's name. Of several numbers that answer one question the first is taken, or `every` one.
    """
    numbers = headlines(record.findings)
    model = model or short_name(str(record.model.get("name") or "the model"))
    words = {"model": model, "unit": str(record.prompts.get("unit") or "prompt")}
    found: list[tuple[int, Answer]] = []
    for probe, findings in record.findings.items():
        mine = [h for h in numbers if h.probe == probe]
        declared = [*_declared(findings, mine, record.model.get("n_layers") or 0, words, every)]
        found += declared or [(_LAST, number(h)) for h in mine]
    read = {"n_read": int(record.prompts.get("n") or 0), "unit": words["unit"]}
    return tuple(replace(answer, **read) for _, answer in sorted(found, key=lambda each: each[0]))


def settled(found: Sequence[Answer]) -> tuple[Answer, ...]:
    """The answers that are not unclear."""
    return tuple(answer for answer in found if answer.verdict != "unclear")


def unclear(found: Sequence[Answer]) -> str:
    """The questions that stay open, each with the reason, in one line; empty if there are none."""
    open_ones = [f"{a.question} {_begun(a.sentence)}" for a in found if a.verdict == "unclear"]
    return f"Cannot tell: {' '.join(open_ones)}" if open_ones else ""


def number(h: Headline) -> Answer:
    """A headline number by its meaning, for a probe without questions."""
    s = h.scalar
    change = "" if h.standing != "unjudged" else f"Not tested: {_why(s)}."
    return Answer(_begun(label(h.probe, h.name, s.meaning)), "number", f"{s.value_text}, {h.verdict}.", change, h)


def _declared(
    findings: Findings, numbers: Sequence[Headline], n_layers: int, words: Mapping[str, str], every: bool
) -> Iterator[tuple[int, Answer]]:
    """The declared answers of a probe: for each question the first whose number is a headline, or `every` one."""
    cls = class_of(findings.probe)
    usual = {} if cls is None else {f.name: f.default for f in fields(cls)}
    column, asked = findings.parameters.get("target", usual.get("target")), set()
    for claim in cls.sentences if cls else ():
        names = {name.format(column=column) for name in claim.numbers}
        h = next((h for h in numbers if h.name in names), None)
        if h is not None and (every or claim.question not in asked):
            asked.add(claim.question)
            target = claim.target if column == usual.get("target") else f"“{column}”"
            place, fact = _place(findings.parameters, n_layers), findings.facts.get(h.name, "")
            own = {"target": target, "place": place, "fact": fact}
            yield claim.order, _answer(claim, h, findings.scalars, {**words, **own})


def _place(parameters: Mapping[str, Any], n_layers: int) -> str:
    """`the head outputs of the last layer`: the (first) site and layers in the parameters of a probe."""
    site = parameters.get("site") or next(iter(parameters.get("sites", ())), "")
    layers = parameters["layers"][0] if parameters.get("layers") else [parameters.get("layer", -1)]
    last = n_layers - (site != "resid")
    counted = [layer + last + 1 if isinstance(layer, int) and layer < 0 else layer for layer in layers]
    whole = {last: "the last layer", "middle": "the middle layer", "all": "all layers"}
    if site == "resid":  # depth 1 is what the first layer has written
        whole |= {0: "the embedding", **{depth: f"layer {depth - 1}" for depth in range(1, last)}}
    named = [whole.get(layer, f"layer {layer}") for layer in counted]
    return f"{_SITES.get(site, 'the activations of')} {' and '.join(named)}"


def _answer(claim: Sentences, h: Headline, scalars: Mapping[str, Scalar], words: Mapping[str, str]) -> Answer:
    values: dict[str, Any] = defaultdict(lambda: DASH, words)
    own = h.name.removesuffix(_BEYOND_CONTROLS)
    whole = scalars.get(own, h.scalar)
    is_nothing = whole.unit == "bits" and is_tiny(whole.value)
    if is_nothing:
        scalars = {name: _in_millionths(s) if abs(s.value) < _SMALL_BITS else s for name, s in scalars.items()}
        controls = tuple((control, _in_millionths(s)) for control, s in h.controls)
        h, whole = replace(h, scalar=_in_millionths(h.scalar), controls=controls), _in_millionths(whole)
    beside = whole.value - h.scalar.value  # of a number beyond controls their mean
    values |= {name: s.value_text for name, s in scalars.items()}
    values["interval"] = defaultdict(lambda: DASH, {k: s.interval_text for k, s in scalars.items() if s.interval})
    is_affirmed = is_nothing and h.standing == claim.expected
    values[own] = whole.value_text + _NOTHING * is_affirmed  # too small to matter to a prediction, however sure it is
    values["own_interval"] = f" (95 % interval {whole.interval_text})" if whole.interval else ""
    values |= {"value": h.scalar.value_text, "size": with_unit(short(abs(h.scalar.value)), h.scalar.unit)}
    values["null"] = DASH if h.scalar.null is None else short(near_zero_as_zero(h.scalar.null.value))
    band = () if h.scalar.null is None else (beside + bound for bound in h.scalar.null.band)
    values["no_more"] = "no more" if _side(h) in ("", claim.expected) else "less"
    values["controls_band"] = " to ".join(map(short, band)) or DASH
    values["n"] = DASH if h.scalar.n is None else f"{h.scalar.n:,}"
    values["beside"] = defaultdict(lambda: DASH, {
        control.scalar: with_unit(short(whole.value - s.value), whole.unit) for control, s in h.controls
    })  # fmt: skip
    values["controls"], values["least"] = with_unit(short(beside), whole.unit), _found(claim, h.scalar, beside) or DASH
    values["detail"] = h.scalar.meaning.partition(": ")[2].rstrip(".")
    verdict = _verdict(claim, h)
    if h.objections:
        sentence = f"{claim.yes.format_map(values)} But this {' and '.join(h.objections)}."
    elif verdict == "unclear":
        sentence = f"{_why(h.scalar)}."
    else:
        chosen = {claim.expected: claim.yes, "within": claim.no}.get(h.standing) or claim.opposite or claim.no
        more = (claim.open if _undecided(h) else claim.rest) if h.standing == claim.expected else ""
        first = _filled(chosen, values) or chosen.format_map(values)
        sentence = f"{_with_controls(first, h)} {_filled(more.strip(), values)}".strip()
    change = f"{_outside(claim, h)}{_change(claim, h, verdict, beside, sentence)}".strip()
    is_beside = _side(h) not in ("", claim.expected) or (verdict == "opposite" and _is_beyond(h))
    further = _filled(claim.further, values)
    return Answer(claim.question.format_map(values), verdict, sentence, change, h, further, is_beside)


def _verdict(claim: Sentences, h: Headline) -> Verdict:
    if claim.yes == claim.no and h.standing != "unjudged":
        return "counted"
    if h.objections or h.standing == "unjudged" or _is_fixed(h.scalar):
        return "unclear"
    if any(_is_reversed(h, s) for _, s in h.controls):
        return "depends"
    if h.standing == "within":
        null = h.scalar.null
        beyond = 0.0 if null is None else h.scalar.value - null.value
        is_far = 2 * (beyond if claim.expected == "above" else -beyond) > _least(claim, h.scalar)
        return "unshown" if is_far else "no"
    return _degree(claim, h.scalar)[0] if h.standing == claim.expected else "opposite"


def _degree(claim: Sentences, s: Scalar) -> tuple[Verdict, str]:
    """The degree of a yes, and if it is not full, where the whole interval lies: `partly`, `below 0.8`."""
    full = claim.full or (_ALL if _is_share(s) or "correlation" in s.meaning.lower().split(" of ")[0] else None)
    if full is None or s.interval is None or (s.interval[0] <= full[1] and s.interval[1] >= full[0]):
        return "yes", ""
    if s.interval[1] < _HARDLY:
        return "hardly", f"below {_HARDLY}"
    return "partly", f"below {full[0]:g}" if s.interval[1] < full[0] else f"above {full[1]:g}"


def _is_beyond(h: Headline) -> bool:
    return h.name.endswith(_BEYOND_CONTROLS)


def _is_share(s: Scalar) -> bool:
    return s.meaning.lower().startswith(("share of the variance", "held-out r²"))


def _is_reversed(h: Headline, control: Scalar) -> bool:
    """Whether a control is on the other side of its null; if the number is within its null, whether it differs."""
    if h.standing == "within":
        turning = ("above",) if _is_beyond(h) else ("above", "below")  # less than all is no use
        return control.standing(None if control.p is None else min(1.0, len(h.controls) * control.p)) in turning
    standing = control.standing()
    if standing == "within" and control.null is not None:
        standing = "above" if control.value > control.null.value else "below"
    return standing in {"above", "below"} - {h.standing}


def _with_controls(sentence: str, h: Headline) -> str:
    """The sentence with what the number leaves out, and the controls that reverse it."""
    turned = []
    if NO_FIRST in h.name:
        sentence = f"Without the first position, {sentence[:1].lower()}{sentence[1:]}"
    for control, s in h.controls:
        if _is_reversed(h, s):
            is_other = s.standing() != "within" and h.standing != "within" and s.value * h.scalar.value < 0
            words, p = _words(control, s), "" if s.p is None else f" ({p_equals(s.p, s.is_p_least)})"
            tested = f", not significant{p}" * (s.standing() == "within")
            turned.append(f"{_begun(words)}{', the opposite' * is_other}: {s.value_text}{tested}.")
    first, *rest = _ENDS.split(sentence)
    return " ".join([first, *turned, *rest])


def _words(control: Control, s: Scalar) -> str:
    beyond = control.words.removeprefix("beyond ")
    rest = f"of what is left after {beyond}" if _is_share(s) else f"compared with {beyond}"
    return beyond if beyond == control.words else rest


def _undecided(h: Headline) -> list[str]:
    """The words of the essential controls that are significant, but whose interval includes the null."""
    beyond = [(c.words, s) for c, s in h.controls if c.essential and s.stands_out]
    return [words for words, s in beyond if s.null and s.interval and s.interval[0] <= s.null.value <= s.interval[1]]


def _in_millionths(s: Scalar) -> Scalar:
    if s.unit != "bits":
        return s
    null = s.null and replace(s.null, value=1e6 * s.null.value, band=(1e6 * s.null.band[0], 1e6 * s.null.band[1]))
    interval = s.interval and (1e6 * s.interval[0], 1e6 * s.interval[1])
    return replace(s, value=1e6 * s.value, interval=interval, null=null, unit=MILLIONTHS)


def _of_draws(s: Scalar) -> str:
    if s.null is None or s.null.n_draws is None:
        return "possible here"
    return f"that {s.null.n_draws:,} {'permutations' if 'permut' in s.null.name else 'draws'} can give"


def _kept(s: Scalar) -> str:
    is_above = s.null is not None and s.null.band[0] > _ABOVE_0 and "permut" in s.null.name and _is_share(s)
    return " (above 0, because this keeps what position predicts)" * is_above


def _side(h: Headline) -> str:
    """The side of its null's band on which a number lies that is not significant; else empty."""
    s = h.scalar
    if h.without_controls != "within" or s.null is None:
        return ""
    return "above" if s.value > s.null.band[1] else "below" if s.value < s.null.band[0] else ""


def _outside(claim: Sentences, h: Headline) -> str:
    """Why a number outside its null's band is not significant; empty for others."""
    s, side = h.scalar, _side(h)
    if not side:
        return ""
    if side != claim.expected:
        other = "larger" if side == "below" else "smaller"
        why = ": the model is less sensitive to this direction than to matched ones" * _is_beyond(h)
        return f"The value lies {side} the baseline's range{why}; only a {other} one would be a “Yes”. "
    if s.p is None or s.unasked_side:
        why = "its interval reaches into it" if s.p is None else "p asks about the other side"
    else:
        both = "p also counts results that lie as far from the baseline on the other side"
        why = both if s.p > ALPHA else "p, corrected for the number of headline results, is too large"
    return f"The value lies outside the baseline's range, but {why}. "


def _change(claim: Sentences, h: Headline, verdict: Verdict, beside: float, sentence: str) -> str:
    """What would change the answer (more prompts, a control), or for a yes, its limit."""
    s = h.scalar
    if h.objections:
        return "If that control agreed, the answer would be yes."
    if s.underpowered:
        return f"More {s.resampled} may decide it" + (f": {s.enough:,} are enough." if s.enough else ".")
    found = _found(claim, s, beside) if h.standing == "within" else ""
    if found:
        more = f"With more {s.resampled}, smaller effects could be found."
        return "" if found in sentence else f"A value of {found} would be found 80 % of the time. {more}"
    if verdict not in (*_AFFIRMED, "counted"):
        return ""
    degree, where = _degree(claim, s)
    degree_words = f"“{SAID[degree][:-1]}”: the whole interval lies {where}. " if where else ""
    return f"{degree_words}{claim.limit}".strip()


def _least(claim: Sentences, s: Scalar) -> float:
    """The smallest effect in the expected direction that is found 80 % of the time; NaN if unknown."""
    return detectable(s)[claim.expected != "above"]


def _found(claim: Sentences, s: Scalar, beside: float) -> str:
    """`0.2 bits or more`: what is found 80 % of the time, plus what is `beside` the number; empty if unknown."""
    least = _least(claim, s)
    if s.null is None or np.isnan(least):
        return ""
    value = beside + s.null.value + (least if claim.expected == "above" else -least)
    return f"{with_unit(short(value), s.unit)} or {'more' if claim.expected == 'above' else 'less'}"


def _filled(text: str, values: Mapping[str, Any]) -> str:
    """Sentences with their values, without those that lack a number, as in older records."""
    filled = [sentence.format_map(values) for sentence in _ENDS.split(text)]
    return " ".join(sentence for sentence in filled if DASH not in sentence)


def _why(s: Scalar) -> str:
    if _is_fixed(s):
        return f"every {s.n_unit} gives {s.value_text}, and so does the null: nothing else may be possible here"
    if s.underpowered or not np.isfinite(s.value):
        return s.weakness if s.underpowered else s.null_reason or "it is not a finite number"
    return f"no baseline: {s.null_reason}"


def _is_fixed(s: Scalar) -> bool:
    """Whether value, interval and null are one number, which no effect can move, as with a single key."""
    return s.null is not None and s.interval is not None and {s.value} == {*s.interval, *s.null.band}


def _begun(text: str) -> str:
    return text[:1].upper() + text[1:]


def _null(s: Scalar) -> str:
    assert s.null is not None
    value, low, high = (near_zero_as_zero(x) for x in (s.null.value, *s.null.band))
    return short(value) if low == high == value or not np.isfinite([low, high]).all() else s.null_text
