"""Files of claims: what is refused, in which words, and that the shipped files hold all fifty."""

from pathlib import Path

import pytest

from interp.errors import UnknownName, UsageError
from interp.ledger.claims import SCALES, Claims, EvidenceSource, Place, builds_on, load_claims, read_claims
from interp.ledger.ledger import read_ledger
from interp.registry import entries, load_entry
from tests.interp.ledger.test_ledger import CLAIMS
from tests.paths import ROOT

PAPERS = ("newer", "paper1", "paper2", "paper3")


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "paper9.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_whole_file_is_read_and_one_with_faults_refused(tmp_path):
    claims = read_claims(written(tmp_path, CLAIMS))
    assert claims.claim[0].parts[0].read.field == "one" and claims.source[0].scales["tiny"].settings == {}
    text = CLAIMS.partition("[[claim.part]]")[0]
    with pytest.raises(UsageError, match="claim 1 has neither a part nor a reason"):
        read_claims(written(tmp_path, text))
    assert read_claims(written(tmp_path, text + 'reason = "nobody can"\n')).claim[0].reason == "nobody can"
    again = CLAIMS + CLAIMS.partition("[[claim]]")[1] + CLAIMS.partition("[[claim]]")[2]
    with pytest.raises(UsageError, match="there are two of the claim 1"):
        read_claims(written(tmp_path, again))
    with pytest.raises(UnknownName, match="paper3"):
        load_claims("paper4")


@pytest.mark.parametrize("old, new, words", [
    ('format = 1', 'format = [', "it cannot be read"),
    ('format = 1', 'format = 2', "format: input should be 1"),
    ('source = "each",', 'source = "elsewhere",', "claim 1 names the source 'elsewhere', which is not there"),
    ('low = 0.5', 'high = 0.5', "the rule at_least needs low, not high"),
    ('kind = "at_least"', 'kind = "nonsense"', "claim.0.part.0.rule.kind: input should be 'at_most'"),
    ('low = 0.5', 'low = 0.5, lwo = 1', "claim.0.part.0.rule.lwo: unexpected keyword argument"),
    ('says = "Both are large."', '', "claim.0.says: field required"),
    ('scales.tiny', 'scales.huge', "source.0.scales.huge"),
    ('probes = ["manifold"]', 'probes = ["manifold"]\nstudy = "primitives"', "'each' has to name probes, or a study"),
    ('probes = ["manifold"]', '', "'each' has to name probes, or a study"),
    ('number = 1', 'number = 1\nnmuber = 8', "claim.0.nmuber: extra inputs are not permitted"),
])  # fmt: skip
def test_a_broken_file_is_refused_in_words(tmp_path, old, new, words):
    assert old in CLAIMS
    with pytest.raises(UsageError) as refused:
        read_claims(written(tmp_path, CLAIMS.replace(old, new, 1)))
    assert refused.value.asked == "the claims in paper9.toml" and words in refused.value.found


@pytest.fixture(scope="module")
def all_claims() -> dict[str, Claims]:
    return {paper: load_claims(paper) for paper in PAPERS}


def test_all_claims_are_there_once_with_number_source_and_scale(all_claims):
    assert tuple(entries("claims")) == PAPERS
    everything = [claim for claims in all_claims.values() for claim in claims.claim]
    assert sorted(claim.number for claim in everything if not claim.is_beyond) == list(range(1, 51))
    beyond = [claim.number for claim in everything if claim.is_beyond]
    assert beyond and len(set(beyond)) == len(beyond) and min(beyond) > 50
    for claims in all_claims.values():
        for claim in claims.claim:
            assert claim.paper and all(value.where for value in claim.paper), claim.number
            assert claim.says.endswith(".") and claim.measure.endswith("."), claim.number


def test_every_part_names_a_number_that_its_probe_or_study_gives(all_claims):
    """One that a committed ledger holds; fresh runs are asked for them in tests/interp/ledger/test_ledger_smoke.py."""
    given = set()
    for folder in (ROOT / "examples" / "ledger").glob("*/"):
        cells = [cell for paper in read_ledger(folder).papers for row in paper.rows for cell in row.cells]
        parts = [part for cell in cells for each in (cell, cell.earlier) if each for part in each.parts]
        given |= {place_of(number) for part in parts for number in part.numbers if number.scalar is not None}
    for claims in all_claims.values():
        for claim in claims.claim:
            for read in claim.reads():
                source = claims.sources()[read.source]
                assert read.of in (source.study or source.probes), (claim.number, read)
                load_entry("study" if source.kind == "study" else "probe", read.of)
                assert place_of(read) in given, (claim.number, read)


def place_of(number: Place) -> tuple:
    return number.of, number.table, number.field, *sorted(number.where)


def configured(source: EvidenceSource, scale: str):
    from interp.running.spec import make_probe, make_study

    changes = source.scales[scale]
    if source.kind == "study":
        settings = {**source.settings, **changes.settings}
        return [make_study(source.study, {n: tuple(v) if isinstance(v, list) else v for n, v in settings.items()})]
    probes = changes.probes or source.probes
    return [make_probe(p, {**source.settings.get(p, {}), **changes.settings.get(p, {})}) for p in probes]


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize("scale", SCALES)
def test_the_settings_of_every_source_fit_its_probes_and_studies(all_claims, paper, scale):
    found = [source for source in all_claims[paper].source if scale in source.scales]
    assert found
    for source in found:
        assert configured(source, scale)
        assert set(builds_on(source)) <= set(all_claims[paper].sources())
        strange = set(source.scales[scale].settings) - set(source.scales[scale].probes or source.probes)
        assert source.kind == "study" or not strange, (source.name, strange)


def test_the_papers_sizes_make_plans(all_claims):
    """What the scale `paper` would train can be built, though nobody waits for it here."""
    from interp.wind_tunnels.studies.primitives.plans import NETWORKS, TASKS, plan_of

    sizes = {task: plan_of(task, "gpt-neox", 42, "papers", None) for task in TASKS}
    assert sizes["bijection"].task.describe()["V"] == 20 and sizes["hmm"].network.n_layers == 9
    asked = all_claims["paper1"].sources()["primitives"].scales["paper"].settings
    assert set(asked["networks"]) <= set(NETWORKS) and asked["size"] == "papers"
