"""A model without its weights, on PyTorch's `meta` device: shapes from the configuration, the tokenizer if found."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from huggingface_hub.errors import RevisionNotFoundError
from transformers import AutoConfig

from interp.errors import ModelError
from interp.loading.admission import count_parameters, read_config
from interp.loading.aliases import ALIASES
from interp.loading.hub_files import ModelFiles
from interp.loading.load import info_from_config
from interp.loading.placement import Placement, choose_placement
from interp.loading.quiet_libraries import quiet_libraries
from interp.loading.sources import ModelSource, source_of
from interp.loading.text_part import build_model, family_in
from interp.loading.tokenizer import has_tokenizer, read_tokenizer
from interp.loading.weights import weight_files
from interp.model import Model
from interp.options import RunOptions
from interp.system.plain_numbers import DTYPES


@dataclass(frozen=True)
class MetaModel:
    """`model` has no weights; `placement` is where it would be loaded; `file_bytes` is the size of its weight files.

    `is_here`: the files need no download; `stored`: their precision. `not_asked`: why the shape is that of the alias
    and not of the model's own configuration.
    """

    model: Model
    placement: Placement
    file_bytes: int
    is_here: bool
    stored: str
    not_asked: str = ""

    @property
    def memory_bytes(self) -> int:
        """The size of the weights in the precision that they are loaded in; of quantised ones, that of their files."""
        is_rounded = self.model.info.quantisation is not None and self.is_here
        return self.file_bytes if is_rounded else self.model.info.n_parameters * DTYPES[self.placement.dtype]

    @property
    def feed_forward_width(self) -> int:
        """Features inside a feed-forward block."""
        return getattr(self.model.config, "intermediate_size", None) or 4 * self.model.info.d_model

    @property
    def note(self) -> str:
        """What is not known of this model, or an empty text."""
        if self.model.info.quantisation is None:
            return self.not_asked
        if self.is_here:
            size = "their size is taken from the files"
        else:
            size = "how small they are is not known, and the size of plain ones is taken"
        return f"the weights are quantised ({self.model.info.quantisation}): {size}; times are those of plain weights"


def meta_model(options: RunOptions, *, or_known: bool = False) -> MetaModel:
    """A model from its configuration alone; raises as `interp.load` does, but not for lack of memory.

    With `or_known` an alias that cannot be read from the hub has the shape in `ALIASES`.
    """
    not_asked, words = "", None
    try:
        source = source_of(options)
        config = read_config(source.files)
        words = read_tokenizer(source.files) if source.task is None and has_tokenizer(source.files) else None
    except ModelError as error:
        alias = ALIASES.get(str(options.model).partition("@")[0])
        if not or_known or alias is None or options.gguf or isinstance(error.__cause__, RevisionNotFoundError):
            raise
        config = AutoConfig.for_model(alias.family, **alias.shape)
        files = ModelFiles(Path(), frozenset(), revision=options.revision or "main")
        source = ModelSource(str(options.model), alias.hub_id, files)
        not_asked = f"{error.found}: shapes are those that are known of {alias.hub_id}"
    n_parameters = count_parameters(config, trust_remote_code=options.trust_remote_code)
    placement = choose_placement(config, n_parameters, options, is_loaded=False)
    stored = str(config.dtype or torch.float32).removeprefix("torch.")
    with torch.device("meta"), quiet_libraries():
        dtype = getattr(torch, placement.dtype)
        module = build_model(config, dtype=dtype, trust_remote_code=options.trust_remote_code)
    info = replace(
        info_from_config(config), name=source.name, source=source.origin, revision=source.files.revision,
        n_parameters=n_parameters, dtype=placement.dtype, device=placement.device,
    )  # fmt: skip
    model = Model(module, words, info, family_in(module), task=source.task, card=source.card)
    try:
        paths = [source.files.folder / name for name in weight_files(source.files)]
    except ModelError:
        paths = []
    is_here = bool(paths) and all(path.exists() for path in paths)
    n_bytes = sum(path.stat().st_size for path in paths) if is_here else n_parameters * DTYPES.get(stored, 4)
    return MetaModel(model, placement, n_bytes, is_here, stored, not_asked)
