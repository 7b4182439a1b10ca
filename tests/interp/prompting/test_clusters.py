"""Which prompts belong together: what a column says, what a set says, what their wording says."""

from dataclasses import replace

import numpy as np
import pytest

import interp
from interp.errors import PromptError
from interp.prompt import Clusters, Prompt, PromptSet
from interp.prompting.clusters import described, notes_of, with_clusters, with_targets
from interp.prompting.pools import most_drawn, refuse_few
from interp.registry import load_entry

NAMES = ("Ann", "Tom", "Ben", "Lucy", "Max", "Sara")
FRAMES = (
    "{} saw the dog and said that it was",
    "In the garden {} found a very old and",
    "Please tell {} about our",
    "{} is",
)


def prompts(**columns: list[str]) -> PromptSet:
    """Every frame with every name, six prompts a frame."""
    texts = [frame.format(name) for frame in FRAMES for name in NAMES]
    rows = [Prompt(text, columns={name: values[i] for name, values in columns.items()}) for i, text in enumerate(texts)]
    return PromptSet("frames", rows, units=dict.fromkeys(columns, "label"))


def ids_of(given: PromptSet) -> list[np.ndarray]:
    words: dict[str, int] = {}
    return [np.array([words.setdefault(w, len(words)) for w in (p.text or "").split()]) for p in given]


def clustered(given: PromptSet) -> PromptSet:
    return with_clusters(given, ids_of(given))


def test_frames_are_found_by_their_wording_and_said() -> None:
    found = clustered(prompts())
    assert found.clusters is not None and found.clusters.by == "shared wording"
    np.testing.assert_array_equal(found.clusters.code[:18], np.repeat([0, 1, 2], 6))
    assert len(np.unique(found.clusters.code[18:])) == 6, "of two words one is not shared"
    assert list(found.clusters.n_at) == [0.25, 0.5, 1.0] and found.clusters.n_at[1.0] == 24
    counting, wording = notes_of(found)
    assert counting.startswith(
        "24 prompts in 9 clusters, by shared wording, which weigh as much as 5 of one size; those of "
    )
    assert "at a quarter the clusters would be" in wording and "at all of them 24" in wording
    assert "6 prompts, such as 'Ann saw the dog" in wording and "which share 7 of 8 pairs" in wording
    assert "--cluster COLUMN" in wording and "--cluster none" in wording


def test_one_template_is_refused_with_what_helps() -> None:
    """More prompts of the same template would not: they join the one cluster that there is."""
    made = clustered(PromptSet("sums", [Prompt(f"What is {i} + {j} ? It is") for i in range(6) for j in range(6)]))
    with pytest.raises(PromptError, match="in 1 cluster, by shared wording") as refused:
        refuse_few(made, load_entry("probe", "manifold")())
    assert "more templates or documents" in refused.value.fix and "`none`" in refused.value.fix
    assert "--n-pool" not in refused.value.fix


@pytest.mark.parametrize(
    ("columns", "cluster", "by", "n"),
    [
        ({"document": [f"d{i // 8}" for i in range(24)]}, None, "the column document", 3),
        ({"document": ["d"] * 24, "cluster": [f"c{i % 4}" for i in range(24)]}, None, "the column cluster", 4),
        ({"document": ["d"] * 24, "author": [f"a{i % 2}" for i in range(24)]}, "author", "the column author", 2),
        ({"document": ["d"] * 24}, "none", "each prompt by itself", 24),
    ],
)
def test_a_column_or_the_user_goes_before_the_wording(columns, cluster, by, n) -> None:
    found = clustered(replace(prompts(**columns), cluster=cluster))
    assert found.clusters is not None and (found.clusters.by, found.clusters.n) == (by, n)
    record = described(found)
    assert record is not None and (record["n"], record["by"]) == (n, by) and notes_of(found)
    assert bool(record["examples"]) == (cluster == "none")


@pytest.mark.parametrize(
    ("column", "cluster", "said"),
    [
        ([i // 2 for i in range(24)], None, "24 prompts of 12 clusters, 2 each; those of one cluster are alike, so"),
        ([i // 6 for i in range(24)], None, "24 prompts of 4 clusters, 6 each; those"),
        ([max(i - 15, 0) for i in range(24)], None, "24 prompts of 9 clusters, which weigh as much as 2 of one size"),
        ([max(i - 10, 0) for i in range(24)], None, ""),
        (range(24), None, ""),
        (
            range(24),
            "none",
            "Each of the 24 prompts counts by itself, as asked; by shared wording they are 9 clusters",
        ),
    ],
)
def test_who_reads_only_the_numbers_is_told_where_clusters_are_at_most_half(column, cluster, said) -> None:
    found = clustered(replace(prompts(cluster=[f"c{i}" for i in column]), cluster=cluster))
    record = described(found)
    assert record is not None and said in record["caution"] and bool(record["caution"]) == bool(said)
    if said:
        assert record["caution"] == notes_of(found)[0]


def test_templates_with_wide_slots_that_share_less_than_half_are_told_to_who_reads_only_the_numbers() -> None:
    frames = [f"{{}} {{}} and {verb} {{}} {{}} in" for verb in ("saw", "met", "told", "asked")]
    texts = [f.format(*(f"w{i}{j}{k}" for k in range(4))) for i, f in enumerate(frames) for j in range(6)]
    texts = [text.replace("and ", f"with {i // 6}x and ") for i, text in enumerate(texts)]
    found = clustered(PromptSet("wide", [Prompt(text) for text in texts]))
    assert found.clusters is not None and found.clusters.n_at == {0.25: 4, 0.5: 24, 1.0: 24}
    (note,) = notes_of(found)
    assert "at a quarter the clusters would be 4" in note and "intervals and p are too good" in note
    record = described(found)
    assert record["n"] == 24 and record["caution"] == note
    assert described(clustered(replace(found, cluster="none", clusters=None)))["caution"] == "", "as was asked"


def test_the_example_of_a_cluster_is_of_two_prompts_that_share_much() -> None:
    starts = (0, 6, 3, 100, 200, 300)  # the first two are linked by the third alone, the others by none
    texts = [" ".join(map(str, range(start, start + 9))) for start in starts]
    found = clustered(PromptSet("chain", [Prompt(text) for text in texts]))
    assert found.clusters is not None and found.clusters.n == 4
    assert "which share 5 of 8 pairs" in found.clusters.examples[0]


def test_parts_count_their_own_clusters() -> None:
    found = clustered(prompts())[6:18]
    assert found.clusters is not None and found.clusters.n_at == {0.25: 2, 0.5: 2, 1.0: 12}
    assert notes_of(found)[0].startswith("12 prompts in 2 clusters, by shared wording")
    assert notes_of(found[[0, 1]])[0].startswith("2 prompts in 1 cluster, by shared wording")
    assert all("such as" not in note for note in notes_of(found)), "an example may be of the others"


PAIR = [i % 12 for i in range(24)]
COLUMNS = {
    "pair": [f"p{pair}" for pair in PAIR], "size": [5 * pair % 12 for pair in PAIR], "side": [i % 2 for i in PAIR],
    "name_of_side": [f"s{i % 2}" for i in PAIR], "own": [*range(24)], "frame": [i // 6 for i in range(24)],
    "quarter": [pair // 3 for pair in PAIR],
}  # fmt: skip


@pytest.mark.parametrize(
    ("cluster", "target", "is_told"),
    [
        ("none", "size", True),  # texts of one pair count by themselves
        ("frame", "size=5", True),  # pairs are in several frames
        ("pair", "size", False),
        ("quarter", "size", False),  # a pair is in one quarter
        ("none", "own", False),
        ("none", "next_entropy_bits", False),
    ],
)
def test_a_target_that_goes_by_another_column_than_the_clusters_is_told(cluster, target, is_told) -> None:
    found = with_targets(clustered(replace(prompts(**COLUMNS), cluster=cluster)), ["None", target])
    said = "has one value for each “pair”, and prompts of one “pair” are not in one cluster"
    assert (said in described(found)["caution"]) == (said in " ".join(notes_of(found))) == is_told


def test_a_caution_names_another_column_once() -> None:
    found = clustered(prompts())
    assert found.clusters is not None
    code_at = {**found.clusters.code_at, 0.25: np.zeros(24)}
    unsure = replace(found.clusters, code_at=code_at, crossed="Name the column.")
    assert described(replace(found, clusters=unsure))["caution"].count("Name the column.") == 1


def test_a_column_that_names_the_few_values_of_a_target_is_no_clustering() -> None:
    few = {name: COLUMNS[name] for name in ("side", "name_of_side")}
    given = clustered(replace(prompts(**few), cluster="none"))
    assert with_targets(given, ["side"]) is given


def test_a_run_and_an_analysis_tell_that_their_target_goes_by_another_column(tiny_text_model) -> None:
    given, asked = replace(prompts(**COLUMNS), cluster="none"), {"manifold": {"target": "size"}}
    record = interp.run(tiny_text_model, probes="manifold", prompts=given, settings=asked, out=None, quiet=True)
    capture = interp.collect(tiny_text_model, given, ["v"])
    for found in (record, interp.analyse(capture, "manifold", settings=asked)):
        assert any("`--cluster pair` uses this column" in caution for caution in found.cautions)


def test_clusters_that_need_no_word_and_a_column_that_is_not_there() -> None:
    alone = PromptSet("alone", [Prompt("one two three"), Prompt("four five six")], cluster="none")
    record = described(clustered(alone))
    assert record is not None and not record["caution"] and notes_of(clustered(alone)) == ()
    with pytest.raises(PromptError, match=r"columns domain[\s\S]*none"):
        clustered(replace(prompts(domain=["x"] * 24), cluster="author"))
    with pytest.raises(PromptError, match="by the column ''"):
        clustered(replace(prompts(domain=["x"] * 24), cluster=""))


@pytest.mark.parametrize("probe", ["causal", "components", "manifold", "orthogonality", "value_axis"])
def test_too_few_clusters_are_refused_before_a_model_reads_them(probe, tiny_text_model, monkeypatch) -> None:
    least = load_entry("probe", probe).least_clusters
    few = prompts(template=[f"t{i % (least - 1)}" for i in range(24)])

    def read(*_, **__) -> None:
        raise AssertionError("the model was read")

    monkeypatch.setattr("interp.running.run.capture_edited", read)
    asked = {"prompts": few, "out": None, "quiet": True}
    with pytest.raises(PromptError, match=rf"24 prompts of {least - 1} templates[\s\S]*at least {least} clusters"):
        interp.run(tiny_text_model, probes=probe, cluster="template", **asked)
    with pytest.raises(PromptError, match=rf"at least {least} prompts[\s\S]*--n-pool"):
        interp.run(tiny_text_model, probes=probe, **asked | {"prompts": few[: least - 1]}, cluster="none")
    with pytest.raises(AssertionError, match="was read"):
        enough = prompts(template=[f"t{i % least}" for i in range(24)])
        interp.run(tiny_text_model, probes=probe, cluster="template", **asked | {"prompts": enough})


def test_a_probe_of_weights_alone_takes_any_prompts(tiny_text_model) -> None:
    one = {"prompts": prompts(template=["t"] * 24), "cluster": "template", "out": None, "quiet": True}
    asked = {"orthogonality": {"definition": "wk_columns"}}
    assert interp.run(tiny_text_model, probes="orthogonality", settings=asked, **one)["orthogonality"].scalars


def test_sequences_of_a_tunnel_stand_each_by_itself_and_rows_say_their_cluster(tunnel) -> None:
    read = interp.collect(tunnel, interp.sampled_prompts(tunnel.task, 6), ["v"])
    np.testing.assert_array_equal(read.rows["cluster"], read.rows["prompt"])
    assert read.prompts.clusters is not None and notes_of(read.prompts) == ()
    ids = [tuple(p.token_ids or ()) for p in read.prompts]
    again = PromptSet("twice", [Prompt(token_ids=ids[i // 2]) for i in range(12)])
    np.testing.assert_array_equal(interp.collect(tunnel, again, ["v"]).rows["cluster"], np.repeat(np.arange(6), 2))


@pytest.mark.parametrize(("sizes", "n_effective"), [((1, 1, 1), 3.0), ((3, 1), 1.6), ((5, 5), 2.0), ((8,), 1.0)])
def test_clusters_of_unequal_size_weigh_as_fewer_of_one_size(sizes, n_effective):
    code = np.repeat(np.arange(len(sizes)), sizes)
    assert Clusters(code, "made", {}).n_effective == pytest.approx(n_effective)


TEXTS = PromptSet("texts", [Prompt(text=f"text {i}") for i in range(100)])
SEQUENCES = PromptSet("tunnel", [Prompt(token_ids=(1, 2), scored=(0,)) for _ in range(100)], unit="sequence")


@pytest.mark.parametrize(
    ("prompts", "per_quintile", "n"),
    [(TEXTS, 8, 40), (TEXTS, 20, 100), (TEXTS, 30, 100), (TEXTS, None, 100), (SEQUENCES, 8, 100)],
)
def test_texts_alone_are_drawn_by_quintile(prompts, per_quintile, n):
    assert most_drawn(prompts, per_quintile) == n
