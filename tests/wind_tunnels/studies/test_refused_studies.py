"""Fields with which a study makes no sense are refused before anything is trained or read."""

from dataclasses import replace
from functools import partial

import pytest
from interp.wind_tunnels.studies.belief_clusters import BeliefClusters
from interp.wind_tunnels.studies.chain_of_thought import ChainOfThought
from interp.wind_tunnels.studies.component_roles import ComponentRoles
from interp.wind_tunnels.studies.depth_profiles import DepthProfiles
from interp.wind_tunnels.studies.expert_division import ExpertDivision
from interp.wind_tunnels.studies.fine_tuning import FineTuning
from interp.wind_tunnels.studies.j_spaces import JSpaces
from interp.wind_tunnels.studies.late_attention import LateAttention
from interp.wind_tunnels.studies.other_variants import OtherVariants
from interp.wind_tunnels.studies.primitives.study import Primitives
from interp.wind_tunnels.studies.sticky_chain.study import StickyChainStudy
from interp.wind_tunnels.studies.training_courses import TrainingCourses
from interp.wind_tunnels.studies.tunnel_evaluation import TunnelEvaluation
from interp.wind_tunnels.studies.tunnel_training import TunnelTraining
from interp.wind_tunnels.studies.update_courses import UpdateCourses
from interp.wind_tunnels.studies.value_curve import ValueCurve
from interp.wind_tunnels.tasks.bijection import Bijection

from interp.errors import UsageError
from tests.progress import nothing
from tests.tiny_models import fresh_model

OVER_SEEDS = (BeliefClusters, DepthProfiles, ExpertDivision, FineTuning, Primitives, StickyChainStudy, TrainingCourses)
RECALL = "tunnel:recall-gpt-neox"


@pytest.mark.parametrize(
    ("study", "words"),
    [
        *((partial(kind, seeds=(1, 1)), "seeds names one or more, each once") for kind in OVER_SEEDS),
        (partial(TrainingCourses, seeds=()), "seeds names one or more"),
        (partial(BeliefClusters, settings=("arch=mambo",)), "mamba"),
        *((partial(kind, settings=("V",)), "field=value") for kind in (TunnelTraining, TrainingCourses, DepthProfiles)),
        (partial(ChainOfThought, settings=("n_layers=5",)), "n_layers: it is given more than once: 5 and 2"),
        (partial(TunnelEvaluation, n=2), "n is a whole number, 20 or more"),
        (partial(TunnelEvaluation, length=0), "length is a whole number, 1 or more"),
        (partial(Primitives, tasks=()), "tasks names one or more"),
        (partial(LateAttention, n_off=3), "no layer"),
        (partial(LateAttention, length=3), "they are not longer"),
        (partial(OtherVariants, settings=("foo=1",)), "it has no such parameter"),
        *((partial(kind, n=0), "n is a whole number, 20 or more") for kind in (OtherVariants, LateAttention)),
        (partial(BeliefClusters, n_pool=0), "n_pool is a whole number, 20 or more"),
        (partial(ComponentRoles, tunnels=RECALL), "queries can be given another address only where"),
        (partial(ComponentRoles, n_pool=5), "n_pool is a whole number, 20 or more"),
        (partial(UpdateCourses, tunnels=RECALL), "kept its weights at 0 steps"),
        (partial(UpdateCourses, n_prompts=1), "n_prompts is a whole number, 2 or more"),
        (partial(FineTuning, n_further=0), "n_further is a whole number"),
        (partial(FineTuning, shifted=("concentrate=1",)), "Did you mean concentration"),
        (partial(FineTuning, shifted=("n_steps=3",)), "field of the task coin 'n_steps'"),
        (partial(StickyChainStudy, n_steps=0), r"sticky_chain\W+n_steps"),
        (partial(StickyChainStudy, n_positions=0), r"sticky_chain\W+n_positions"),
        (partial(StickyChainStudy, rate=0.0), r"sticky_chain\W+rate"),
        (partial(StickyChainStudy, rates=(0.1, -1.0)), r"sticky_chain\W+rates"),
        (partial(StickyChainStudy, seeds=()), r"sticky_chain\W+seeds"),
        (partial(StickyChainStudy, self_prob=1.0), r"sticky_chain\W+self_prob"),
        (partial(StickyChainStudy, self_prob=-0.1), r"sticky_chain\W+self_prob"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_a_study_that_makes_no_sense_is_refused(tmp_path, study, words):
    with pytest.raises(UsageError, match=words):
        study().measure(tmp_path, nothing)
    assert list(tmp_path.iterdir()) == [], "nothing was trained"


def test_a_stream_too_narrow_for_the_spaces_that_are_read_is_refused(tmp_path, monkeypatch):
    model = fresh_model("llama")
    narrow = replace(model, task=Bijection(), info=replace(model.info, d_model=16))
    monkeypatch.setattr("interp.load", lambda name: narrow)
    with pytest.raises(UsageError, match="has a stream of 16 dimensions"):
        JSpaces("a-tunnel").measure(tmp_path, nothing)


def test_a_language_model_is_no_tunnel(tmp_path, monkeypatch):
    monkeypatch.setattr("interp.load", lambda name: fresh_model("llama"))
    with pytest.raises(UsageError, match="no posterior is known of a language model"):
        ValueCurve("a-language-model").measure(tmp_path, nothing)
