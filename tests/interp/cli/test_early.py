"""Wrong words are refused before torch is imported."""

import pytest

from tests.one_process import in_one_process

WRONG = {
    "probe": (["--probe", "manifol"], "Did you mean manifold?"),
    "field": (["--probe", "manifold", "--set", "manifold.nope=1"], "there is no field of manifold of this name"),
    "value": (["--probe", "value_axis", "--set", "value_axis.n_permutations=-1"], "value_axis.n_permutations = -1"),
    "set": (["--prompts", "mixd"], "Did you mean mixed?"),
    "file": (["--prompts", "missing.jsonl"], "No such file or directory"),
    "line": (["--prompts", "broken.jsonl"], "broken.jsonl, line 2"),
    "model": (["--model", "pythia-411m"], "Did you mean pythia-410m"),
    "one of several models": (["--model", "gpt2,nosuch"], "model 'nosuch'"),
    "folder": (["--model", "./nothere"], "there is no such folder"),
    "precision": (["--dtype", "bf17"], "Did you mean bfloat16"),
    "device": (["--device", "gpu"], "Use cpu, cuda, cuda:1 ... or mps."),
    "number of a device": (["--device", "cuda:x"], "there is no such kind of device"),
    "number without its null": (["--n-untrained", "5"], "nothing is repeated on untrained weights"),
    "column of a built-in set": (["--prompts", "mixed", "--text-column", "question"], "they have none"),
    "tunnel": (["--model", "tunnel:nosuch"], "there is no tunnel of this name"),
    "task": (["train", "nonsense"], "Known: bijection, coin"),
}

CALLS = [
    *((what, "tunnel" if what == "task" else "run") for what in WRONG),
    *((what, "plan") for what in ("field", "file", "model")),
]


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    folder = tmp_path_factory.mktemp("early")
    (folder / "broken.jsonl").write_text('{"text": "one"}\n{"text": \n', encoding="utf-8")
    done = in_one_process([([command, *WRONG[what][0]], {}) for what, command in CALLS], folder)
    return dict(zip(CALLS, done, strict=True))


@pytest.mark.parametrize(("what", "command"), CALLS)
def test_a_wrong_word_is_refused_before_torch_is_imported(said, what, command):
    done = said[what, command]
    assert done.code in (1, 2) and WRONG[what][1] in done.err, done.err
    assert done.out == "" and not {"torch", "transformers"} & {*done.imported}
