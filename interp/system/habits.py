"""Names of activations, functions and options in other libraries, and what replaces them here."""

from collections.abc import Mapping

_SITES: Mapping[str, str] = {
    "resid": "hidden_states hidden_state last_hidden_state residual residual_stream resid_pre resid_post embed "
    "embeddings inputs_embeds output",
    "pattern_row": "attentions attention attn attn_weights attention_weights pattern attention_pattern attn_probs",
    "qk_logit": "attn_scores attention_scores",
    "next_log_prob": "logits logit probs log_probs logprobs output_logits lm_head",
    "next_loss": "loss nll cross_entropy surprisal",
    "pattern_entropy": "attention_entropy attn_entropy entropy",
    "lens_log_prob": "logit_lens lens",
    "q_pre": "q_proj",
    "k_pre": "k_proj",
    "q": "rot_q query queries",
    "k": "rot_k key keys past_key_values",
    "v": "v_proj value values",
    "z": "result head_out head_outputs",
    "attn_out": "self_attn o_proj c_proj attn_output",
    "mlp_out": "mlp ffn feed_forward ff_out",
}  # fmt: skip
"""Sites, and their names in other libraries."""

_OPTIONS: Mapping[str, str] = {
    "probe": "It is `probes` in Python, --probe in the shell.",
    "prompt": "It is `prompts=[...]` in Python, --prompt or --prompts in the shell.",
    "texts": "They are `prompts`.",
    "text": "It is `prompts`: a list of texts.",
    "dataset": "It is `prompts`.",
    "torch_dtype": "It is `dtype`.",
    "output": "It is `out`.",
    "output_dir": "It is `out`.",
    "save_dir": "It is `out`.",
    "model_name": "It is `model`.",
    "model_name_or_path": "It is `model`.",
    "pretrained_model_name_or_path": "It is the first argument.",
    "resume": "The same command, or call, resumes what was interrupted.",
    "n_samples": "It is `n_pool`.",
    "limit": "It is `n_pool`.",
    "max_length": "It is `window`: the last tokens of each text.",
    "max_new_tokens": "It is `n_tokens`.",
    "random_state": "It is `seed`.",
    "batch_size": "Batches are cut by tokens and halved where memory gives out: leave it out (interp.run takes it).",
    "layer": "A setting of a probe: --layer in the shell, settings={'manifold': {'layer': 3}} in Python.",
    "do_sample": "A temperature above 0 draws tokens.",
    "top_k": "Tokens are the most likely ones, or drawn at a `temperature`.",
    "top_p": "Tokens are the most likely ones, or drawn at a `temperature`.",
    "attn_implementation": "Attention is read by a function of interp's own: leave it out.",
    "at": "Positions belong to a need: interp.Need('v', at='last').",
    "names_filter": "Name what you want in `needs`.",
    "output_hidden_states": 'It is `interp.collect(model, texts, ["resid"])`.',
    "output_attentions": 'It is `interp.collect(model, texts, ["pattern_row"])`.',
    "load_in_8bit": "Quantise with transformers and hand the model over, with allow_quantised=True.",
    "load_in_4bit": "Quantise with transformers and hand the model over, with allow_quantised=True.",
    "verbose": "All but `quiet` runs say what they do; -v in the shell prints every number.",
}  # fmt: skip


_FUNCTIONS: Mapping[str, str] = {
    "load": "from_pretrained AutoModel AutoModelForCausalLM HookedTransformer LanguageModel NNsight load_model",
    "collect": "run_with_cache trace ActivationCache get_activations cache activations hidden_states",
    "applied": "run_with_hooks hooks edit intervene add_hook",
    "open_features": "SAE SparseAutoencoder features",
    "fit_lens": "TunedLens LogitLens lens",
    "run": "fit probe evaluate",
}
"""Functions, and their names in other libraries."""

_REMARKS: Mapping[str, str] = {
    "resid": ", whose depth L is what enters layer L",
    "pattern_row": " (log2 of it; pattern_entropy, sink_mass and more are reductions of it)",
    "next_log_prob": " (log2 probabilities)",
}


def site_of(name: str) -> str:
    """A sentence that names the site for an activation of another library, or an empty text."""
    end = name.lower().rpartition(".")[2].removeprefix("hook_")
    found = next((site for site, theirs in _SITES.items() if end in theirs.split()), "")
    if end in ("q", "k") and end != name:
        found = f"{end}_pre"  # hook_q is before the rotation
    elif end in ("v", "z", "attn_out", "mlp_out") and end != name:
        found = end
    return f"Here it is {found!r}{_REMARKS.get(found, '')}." if found else ""


def function_of(name: str) -> str:
    """A sentence that names the function for a name of another library, or an empty text."""
    found = next((ours for ours, theirs in _FUNCTIONS.items() if name in theirs.split()), "")
    return f"Here it is interp.{found}." if found else ""


def option_of(name: str) -> str:
    """A sentence on the replacement of an option of another library, or an empty text."""
    return _OPTIONS.get(name.lstrip("-").replace("-", "_"), "")
