"""The four families once more, in numpy float64 and straight from the published equations: an independent oracle.

Nothing here is shared with the toolkit or with transformers. Sequences are single, without padding.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import erf, softmax


@dataclass
class LayerTruth:
    """What one layer computed; heads before positions, `[head, pos, d_head]`."""

    q_pre: np.ndarray
    k_pre: np.ndarray
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    pattern: np.ndarray
    z: np.ndarray
    attn_out: np.ndarray
    mlp_out: np.ndarray
    resid: np.ndarray


@dataclass
class Truth:
    layers: list[LayerTruth]
    final_resid: np.ndarray
    logits: np.ndarray


def _leave(site, layer, x, entered=None):
    """Changes nothing."""
    return x


def run_reference(model, ids, touch=_leave) -> Truth:
    """Forward pass of a transformers model's weights on token ids, in float64.

    `touch(site, layer, x)` may change what the pass goes on with: heads `[head, pos, d_head]` at q, k, v and z, the
    stream `[pos, d_model]` at resid, attn_out and mlp_out, and at `block` what a layer leaves, `entered` being what it
    received.
    """
    weights = {name: p.detach().double().numpy() for name, p in model.state_dict().items()}
    return _FAMILIES[model.config.model_type](weights, model.config, np.asarray(ids), touch)


def _layer_norm(x, scale, shift, eps):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred**2, -1, keepdims=True) + eps) * scale + shift


def _rms_norm(x, scale, eps):
    return x / np.sqrt(np.mean(x**2, -1, keepdims=True) + eps) * scale


def _gelu(x):
    return 0.5 * x * (1 + erf(x / np.sqrt(2)))


def _gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def _silu(x):
    return x / (1 + np.exp(-x))


def _rotate(x, n_rotary, theta):
    """Rotate planes (i, i + n/2) of the first `n_rotary` dimensions by position · theta^(−2i/n)."""
    half = n_rotary // 2
    angle = np.arange(x.shape[1])[:, None] * theta ** (-2 * np.arange(half) / n_rotary)[None, :]
    a, b = x[..., :half], x[..., half:n_rotary]
    turned = [a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)]
    return np.concatenate([*turned, x[..., n_rotary:]], axis=-1)


def _attend(q, k, v, window=None):
    """Patterns and head outputs; query head h reads key-value head h // group."""
    group = len(q) // len(k)
    n = q.shape[1]
    i, j = np.arange(n)[:, None], np.arange(n)[None, :]
    seen = (j <= i) & ((i - j < window) if window else True)
    score = np.stack([q[h] @ k[h // group].T for h in range(len(q))]) / np.sqrt(q.shape[-1])
    pattern = softmax(np.where(seen, score, -np.inf), axis=-1)
    return pattern, np.stack([pattern[h] @ v[h // group] for h in range(len(q))])


def _heads(x, n):
    """[pos, n * d] -> [n, pos, d]"""
    return x.reshape(len(x), n, -1).transpose(1, 0, 2)


def _flat(z):
    return z.transpose(1, 0, 2).reshape(z.shape[1], -1)


def _linear(w, name, x):
    return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0)


def _blocks(x, c, touch, n_rotary, project, output, feed_forward, window=None):
    """All layers on the stream: `project` gives q, k and v, `output` and `feed_forward` the two updates of a layer."""
    layers = []
    for i in range(c.num_hidden_layers):
        x = touch("resid", i, x)
        q_pre, k_pre, v = project(i, x)
        q, k = (_rotate(t, n_rotary, c.rope_parameters["rope_theta"]) for t in (q_pre, k_pre))
        q, k, v = (touch(s, i, t) for s, t in (("q", q), ("k", k), ("v", v)))
        pattern, z = _attend(q, k, v, window)
        z = touch("z", i, z)
        attn = touch("attn_out", i, output(i, _flat(z)))
        mlp = touch("mlp_out", i, feed_forward(i, x, attn))
        layers.append(LayerTruth(q_pre, k_pre, q, k, v, pattern, z, attn, mlp, x))
        x = touch("block", i, x + attn + mlp, x)
    return layers, touch("resid", c.num_hidden_layers, x)


def _projections(w, c, name, normed):
    """Queries, keys and values by three matrices."""
    n_heads = {"q": c.num_attention_heads, "k": c.num_key_value_heads, "v": c.num_key_value_heads}
    return [_heads(_linear(w, f"{name}.{s}_proj", normed), n) for s, n in n_heads.items()]


def _gpt_neox(w, c, ids, touch=_leave) -> Truth:
    d = c.hidden_size // c.num_attention_heads
    at = "gpt_neox.layers.{}.".format

    def norm(name, x):
        return _layer_norm(x, w[f"{name}.weight"], w[f"{name}.bias"], c.layer_norm_eps)

    def project(i, x):
        fused = _linear(w, at(i) + "attention.query_key_value", norm(at(i) + "input_layernorm", x))
        return [
            np.stack([fused[:, 3 * d * h + s * d : 3 * d * h + (s + 1) * d] for h in range(c.num_attention_heads)])
            for s in range(3)
        ]

    def feed_forward(i, x, attn):
        normed = norm(at(i) + "post_attention_layernorm", x if c.use_parallel_residual else x + attn)
        return _linear(w, at(i) + "mlp.dense_4h_to_h", _gelu(_linear(w, at(i) + "mlp.dense_h_to_4h", normed)))

    layers, x = _blocks(
        w["gpt_neox.embed_in.weight"][ids], c, touch, int(d * c.rope_parameters["partial_rotary_factor"]), project,
        lambda i, z: _linear(w, at(i) + "attention.dense", z), feed_forward,
    )  # fmt: skip
    head = w["embed_out.weight"] if "embed_out.weight" in w else w["lm_head.weight"]
    return Truth(layers, x, norm("gpt_neox.final_layer_norm", x) @ head.T)


def _phi(w, c, ids, touch=_leave) -> Truth:
    d = c.hidden_size // c.num_attention_heads
    at = "model.layers.{}.".format

    def norm(name, x):
        return _layer_norm(x, w[f"{name}.weight"], w[f"{name}.bias"], c.layer_norm_eps)

    def feed_forward(i, x, attn):
        hidden = _gelu_tanh(_linear(w, at(i) + "mlp.fc1", norm(at(i) + "input_layernorm", x)))
        return _linear(w, at(i) + "mlp.fc2", hidden)

    layers, x = _blocks(
        w["model.embed_tokens.weight"][ids], c, touch, int(d * c.rope_parameters["partial_rotary_factor"]),
        lambda i, x: _projections(w, c, at(i) + "self_attn", norm(at(i) + "input_layernorm", x)),
        lambda i, z: _linear(w, at(i) + "self_attn.dense", z), feed_forward,
    )  # fmt: skip
    return Truth(layers, x, _linear(w, "lm_head", norm("model.final_layernorm", x)))


def _llama(w, c, ids, touch=_leave, window=None) -> Truth:
    d_head = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    at = "model.layers.{}.".format

    def norm(name, x):
        return _rms_norm(x, w[f"{name}.weight"], c.rms_norm_eps)

    def feed_forward(i, x, attn):
        normed = norm(at(i) + "post_attention_layernorm", x + attn)
        gate = _silu(_linear(w, at(i) + "mlp.gate_proj", normed))
        return _linear(w, at(i) + "mlp.down_proj", gate * _linear(w, at(i) + "mlp.up_proj", normed))

    layers, x = _blocks(
        w["model.embed_tokens.weight"][ids], c, touch, d_head,
        lambda i, x: _projections(w, c, at(i) + "self_attn", norm(at(i) + "input_layernorm", x)),
        lambda i, z: _linear(w, at(i) + "self_attn.o_proj", z), feed_forward, window,
    )  # fmt: skip
    head = w["lm_head.weight"] if "lm_head.weight" in w else w["model.embed_tokens.weight"]
    return Truth(layers, x, norm("model.norm", x) @ head.T)


def _mistral(w, c, ids, touch=_leave) -> Truth:
    return _llama(w, c, ids, touch, window=c.sliding_window)


_FAMILIES = {"gpt_neox": _gpt_neox, "phi": _phi, "llama": _llama, "mistral": _mistral}
