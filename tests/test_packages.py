"""The packages of the design do the work that they are there for: each is caught in the act on its real path.

A spy stands before a package's own function and lets every call through. A path that stops using its package leaves
the spy without a call, and the test fails.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import interp
from interp.errors import UsageError
from interp.need import Need
from interp.prompt import Prompt, PromptSet
from interp.reading.forward import capture
from interp.testing import Shape, synthetic_capture
from tests.tiny_models import fresh_model, tiny_model

IDS = [np.array([1, 2, 3]), np.array([4, 5])]
SEQUENCES = (PromptSet("two", [Prompt(token_ids=tuple(map(int, x)), scored=(len(x) - 1,)) for x in IDS]), IDS)

Spy = Callable[[Any, str], list[str]]


@pytest.fixture
def spy(monkeypatch) -> Spy:
    """`spy(owner, name)`: a list that grows by one with every call of `owner.name`, which still does its work."""

    def watch(owner: Any, name: str) -> list[str]:
        original, calls = getattr(owner, name), []

        def called(*args: Any, **options: Any) -> Any:
            calls.append(name)
            return original(*args, **options)

        monkeypatch.setattr(owner, name, called)
        return calls

    return watch


def test_a_spy_counts_calls_and_lets_them_through(spy):
    calls = spy(json, "loads")
    assert json.loads("[1]") == [1] and calls == ["loads"]


def test_torch_computes_what_is_captured(spy):
    import torch

    calls = spy(torch.nn.Linear, "forward")
    found = capture(fresh_model("llama"), *SEQUENCES, [Need("v")])
    assert len(calls) >= 3 * 4  # q, k, v and output of three layers
    assert found[Need("v")].shape == (3, 2, 2, 12) and found[Need("v")].std() > 0


def test_transformers_loads_configuration_tokenizer_and_weights(spy, tiny_folders):
    import transformers

    configs = spy(transformers.AutoConfig, "from_pretrained")
    tokenizers = spy(transformers.AutoTokenizer, "from_pretrained")
    models = spy(transformers.AutoModelForCausalLM, "from_pretrained")
    model = interp.load(str(tiny_folders["llama"]))
    assert configs and tokenizers and models
    assert isinstance(model.module, transformers.PreTrainedModel)


def test_transformer_lens_is_the_oracle_of_the_self_check(spy):
    from transformer_lens.model_bridge import TransformerBridge

    from interp.self_check.witnesses import check_against

    calls = spy(TransformerBridge, "run_with_cache")
    checks = check_against("transformer-lens", tiny_model("gpt_neox"))
    assert calls == ["run_with_cache"] and len(checks) >= 5 and all(check.passed for check in checks)


def test_accelerate_brings_in_the_weights_of_an_offloaded_model(spy):
    import accelerate.utils
    import torch
    from accelerate import cpu_offload

    whole = fresh_model("llama")
    module = fresh_model("llama").module
    cpu_offload(module, execution_device=torch.device("cpu"))
    model = interp.load(module, check=False)
    calls = spy(accelerate.utils, "align_module_device")
    found = capture(model, *SEQUENCES, [Need("W_O")])[Need("W_O")]
    assert calls and all(p.is_meta for p in module.parameters())
    np.testing.assert_array_equal(found, capture(whole, *SEQUENCES, [Need("W_O")])[Need("W_O")])


@pytest.mark.slow
def test_accelerate_starts_two_processes_that_share_a_run(tmp_path):
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2",
              "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]  # fmt: skip
    words = ["-m", "interp", "run", "--probe", "attention_entropy", "--n-pool", "12", "--out", str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run([*launch, *words], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    (folder,) = tmp_path.iterdir()
    assert json.loads((folder / "run.json").read_text())["environment"]["processes"] == 2


def test_datasets_reads_parquet_as_a_stream(spy, tmp_path):
    import datasets

    from interp.prompting.files import resolve_prompts

    (tmp_path / "set").mkdir()
    rows = [{"text": f"row {i} and", "k": i} for i in range(30)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "set" / "train.parquet")
    streamed = spy(datasets.IterableDataset, "__iter__")
    found = resolve_prompts(f"hf:{tmp_path / 'set'}")
    assert streamed and [p.text for p in found] == [row["text"] for row in rows]


@pytest.mark.slow  # its compiler takes half a minute
@pytest.mark.filterwarnings("ignore:Tensorflow not installed:ImportWarning")
def test_umap_places_the_points_with_the_distances_of_scikit_learn(spy):
    import sklearn.metrics
    import umap
    from interp.probes.manifold.probe import Manifold

    assert umap.umap_.pairwise_distances is sklearn.metrics.pairwise_distances
    placed, distances = spy(umap.UMAP, "fit_transform"), spy(umap.umap_, "pairwise_distances")
    probe = Manifold(umap="on", n_permutations=20, n_null=20, n_bootstrap=20, n_splits=2)
    found = probe.analyse(synthetic_capture(probe.needs, Shape(30, n_layers=1)), {})
    assert placed == ["fit_transform"] and distances
    assert found.tables["umap"].n_rows == 30 and np.isfinite(found.tables["umap"]["umap1"]).all()


def test_plotly_draws_every_figure_of_the_page(spy):
    import plotly.graph_objects as go

    from interp.registry import load_entry

    made = spy(go.Figure, "__init__")
    probe = load_entry("probe", "attention_entropy")(n_permutations=20, n_bootstrap=20)
    found = probe.analyse(synthetic_capture(probe.needs, Shape(20)), {})
    figures = probe.figures(found)
    assert made and figures
    for figure in figures:
        drawn = found.plot(figure.name)
        assert isinstance(drawn, go.Figure) and len(drawn.data) > 0


def _data_set(folder):
    from interp.prompting.files import resolve_prompts

    return resolve_prompts(f"hf:{folder}")


def _umap(folder):
    from interp.probes.manifold.probe import Manifold

    probe = Manifold(umap="on", n_permutations=20, n_null=20, n_bootstrap=20, n_splits=2)
    return probe.analyse(synthetic_capture(probe.needs, Shape(30, n_layers=1)), {})


def _gguf(folder):
    from interp.loading.gguf_file import read_header

    return read_header(folder / "a.gguf")


def _oracle(folder):
    from interp.self_check.witnesses import check_against

    return check_against("transformer-lens", tiny_model("gpt_neox"))


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [("datasets", "hub", _data_set), ("umap", "umap", _umap), ("gguf", "gguf", _gguf),
     ("transformer_lens", "oracle", _oracle)],
)  # fmt: skip
def test_a_missing_optional_part_is_named(package, extra, use, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError) as told:
        use(tmp_path)
    assert told.value.fix == f"pip install 'interp[{extra}]'" and "is not installed" in told.value.found
