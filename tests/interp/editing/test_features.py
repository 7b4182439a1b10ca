"""Decoder rows of sparse autoencoders: read from SAELens' layout, as axes of edits, and beside the value axis."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import interp
from interp.editing.features import CONFIG, WEIGHTS
from interp.errors import RecordError, UsageError

RNG = np.random.default_rng(0)
DECODER = RNG.standard_normal((40, 16)).astype(np.float32)


def saved(folder, config=None, weights=None):
    folder.mkdir(exist_ok=True)
    config = config or {
        "d_in": 16,
        "d_sae": 40,
        "metadata": {"hook_name": "blocks.1.hook_resid_post", "model_name": "m"},
    }
    (folder / CONFIG).write_text(json.dumps(config))
    tensors = {"W_dec": torch.from_numpy(DECODER), "W_enc": torch.zeros(16, 40), "b_enc": torch.zeros(40)}
    save_file(tensors if weights is None else weights, folder / WEIGHTS)
    return folder


@pytest.mark.parametrize(("config", "place"), [
    ({"d_in": 16, "d_sae": 40, "metadata": {"hook_name": "blocks.1.hook_resid_post"}}, {"site": "resid", "layer": 2}),
    ({"d_in": 16, "d_sae": 40, "hook_name": "blocks.1.hook_resid_pre", "hook_layer": 1, "hook_head_index": None},
     {"site": "resid", "layer": 1}),
    ({"hook_name": "blocks.3.attn.hook_z", "hook_head_index": 2}, {"site": "z", "layer": 3, "head": 2}),
    ({"architecture": "skip_transcoder", "d_in": 99, "d_out": 16, "metadata": {"hook_name": "blocks.1.hook_mlp_in",
      "hook_name_out": "blocks.4.hook_resid_post", "hook_layer_out": 4}}, {"site": "resid", "layer": 5}),
    ({"d_out": 16, "hook_name": "blocks.3.attn.hook_z", "hook_head_index": 2, "hook_name_out": "blocks.2.attn.hook_v",
      "hook_head_index_out": 1}, {"site": "v", "layer": 2, "head": 1}),
])  # fmt: skip
def test_old_and_new_configurations_say_where_the_features_lie(tmp_path, config, place):
    features = interp.open_features(saved(tmp_path / "sae", config))
    assert features.place == place
    np.testing.assert_array_equal(features.directions, DECODER)
    half = torch.from_numpy(DECODER).bfloat16()
    features = interp.open_features(saved(tmp_path / "half", weights={"W_dec": half}))
    np.testing.assert_array_equal(features.directions, half.double().numpy())


@pytest.mark.parametrize(("config", "words"), [
    *(({"hook_name": "blocks.1.attn.hook_z", "hook_head_index": head}, "hook_head_index is .* no head")
      for head in ("1", [1], True, -1, 1.5)),
    ({"architecture": "transcoder", "metadata": {"hook_name": "blocks.1.hook_resid_pre"}}, "has no hook_name_out"),
    ({"hook_name": "blocks.1.hook_resid_pre", "hook_layer_out": 2}, "has no hook_name_out"),
    ({"hook_name": "a", "hook_name_out": "blocks.2.hook_resid_post", "hook_layer_out": 1}, "hook_layer_out is 1"),
    ({"hook_name_out": "blocks.2.attn.hook_v", "hook_head_index_out": "0"}, "hook_head_index_out is '0'"),
])  # fmt: skip
def test_a_place_that_is_none_is_refused(tmp_path, config, words):
    with pytest.raises(RecordError, match=words):
        interp.open_features(saved(tmp_path / "sae", config))


def test_a_residual_depth_is_that_of_the_hook(tunnel):
    """`hook_resid_post` of block 1 is the input of block 2: removing an axis there leaves none of it in its input."""
    axis = RNG.standard_normal(tunnel.info.d_model)
    features = interp.Features("made", "blocks.1.hook_resid_post", axis[None])
    heard = []
    block = tunnel.family.layer_modules(tunnel.module)[2]
    removed = interp.RemoveAxis(**features.place, axis=features.directions[0])
    with torch.no_grad(), interp.applied(tunnel, removed):
        handle = block.register_forward_pre_hook(
            lambda m, args, kwargs: heard.append(args[0] if args else kwargs["hidden_states"]), with_kwargs=True
        )
        tunnel.module(torch.tensor([[1, 2, 3]]))
        handle.remove()
    assert np.abs(heard[0][0].double().numpy() @ axis).max() < 1e-4


def test_cosines_are_those_of_brute_force_and_dead_features_are_left_out():
    axis = RNG.standard_normal(16)
    rows = np.concatenate([np.zeros((1, 16)), DECODER]).astype(float)
    found = interp.feature_overlap(axis, interp.Features("made", "blocks.0.hook_resid_pre", rows), n=5)
    by_hand = [float(r @ axis / np.linalg.norm(r) / np.linalg.norm(axis)) for r in rows[1:]]
    order = sorted(range(40), key=lambda i: -abs(by_hand[i]))[:5]
    assert found.features.tolist() == [i + 1 for i in order] and (found.n, found.n_dead) == (40, 1)
    np.testing.assert_allclose(found.cosine, [by_hand[i] for i in order])
    assert f"nearest of 40 features: {order[0] + 1}, cosine {by_hand[order[0]]:+.3f}, p = {found.p[0]:.2g};" in str(
        found
    )


def test_the_null_is_that_of_equally_many_random_directions():
    """Simulated: the nearest, and the third nearest, of 40 random directions in 16 dimensions."""
    draws = RNG.standard_normal((4000, 40, 16))
    cosines = np.sort(np.abs(draws[..., 0]) / np.linalg.norm(draws, axis=2), axis=1)[:, ::-1]
    axis = np.eye(16)[0]
    found = interp.feature_overlap(axis, interp.Features("made", "blocks.0.hook_resid_pre", draws[0]), n=3)
    assert found.null == pytest.approx(cosines[:, 0].mean(), abs=0.01)
    np.testing.assert_allclose(found.null_band, np.quantile(cosines[:, 0], [0.025, 0.975]), atol=0.02)
    for rank in range(3):
        simulated = (cosines[:, rank] >= cosines[0, rank]).mean()
        assert found.p[rank] == pytest.approx(simulated, abs=0.04)


def test_a_planted_feature_stands_out_and_random_ones_do_not():
    axis = RNG.standard_normal(16)
    planted = interp.Features("made", "blocks.0.hook_resid_pre", np.concatenate([DECODER, -3 * axis[None]]))
    found = interp.feature_overlap(axis, planted, n=2)
    assert found.features[0] == 40 and found.cosine[0] == pytest.approx(-1) and found.p[0] < 1e-6
    ps = []
    for _ in range(300):
        features = interp.Features("random", "h", RNG.standard_normal((40, 16)))
        ps.append(interp.feature_overlap(RNG.standard_normal(16), features, n=1).p[0])
    assert 0.02 < np.mean(np.array(ps) < 0.05) < 0.09


def test_the_value_axis_of_a_record_is_taken_at_the_place_of_the_features():
    fast = {"sites": ("resid",), "n_permutations": 19}
    record = interp.run(probes="value_axis", settings={"value_axis": fast}, n_pool=60, out=None, quiet=True)
    arrays = record.findings["value_axis"].arrays["resid.ridge.displacement"]
    rows = np.concatenate([RNG.standard_normal((20, arrays.shape[1])), arrays[2][None]])
    found = interp.feature_overlap(record, interp.Features("made", "blocks.1.hook_resid_post", rows), n=1)
    assert found.features[0] == 20 and found.cosine[0] == pytest.approx(1)
    with pytest.raises(UsageError, match=r"value_axis\.sites=z"):
        interp.feature_overlap(record, interp.Features("made", "blocks.1.attn.hook_z", rows))
    with pytest.raises(UsageError, match="of them"):
        interp.feature_overlap(record, interp.Features("made", "blocks.9.hook_resid_pre", rows))


def test_what_cannot_be_used_is_refused_in_words(tmp_path):
    def refused(words, folder=tmp_path / "sae"):
        with pytest.raises(RecordError, match=words):
            interp.open_features(folder)

    refused(r"no cfg\.json", tmp_path / "nothing")
    saved(tmp_path / "sae", {"d_in": 16})
    refused("no hook_name")
    saved(tmp_path / "sae", {"hook_name": "blocks.0.hook_resid_pre", "d_in": 40, "d_sae": 16})
    refused("says")
    saved(tmp_path / "sae", weights={"W_enc": torch.zeros(2, 2)})
    refused("contains W_enc")
    saved(tmp_path / "sae", weights={"W_dec": torch.full((40, 16), float("nan"))})
    refused("not finite")
    (tmp_path / "sae" / WEIGHTS).write_bytes(b"cut")
    refused("cannot be read")
    (tmp_path / "sae" / WEIGHTS).unlink()
    refused(r"no sae_weights\.safetensors")
    with pytest.raises(UsageError, match="edits act on"):
        _ = interp.Features("made", "blocks.1.hook_mlp_out", DECODER.astype(float)).place
    for axis in (np.ones(15), np.zeros(16)):
        with pytest.raises(UsageError, match="16 dimensions"):
            interp.feature_overlap(axis, interp.Features("made", "h", DECODER.astype(float)))
