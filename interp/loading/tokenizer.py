"""The tokenizer of a model, from the files beside its weights."""

import tempfile
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from interp.errors import ModelError
from interp.loading.hub_files import ModelFiles
from interp.loading.quiet_libraries import quiet_libraries
from interp.system.foreign_files import readable

_VOCABULARIES = frozenset(
    {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json"}
)
_COMPANIONS = frozenset(
    {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt", "chat_template.jinja"}
)


def has_tokenizer(files: ModelFiles) -> bool:
    """Whether there is a vocabulary beside the weights, or in their GGUF file."""
    return files.gguf is not None or bool(files.names & _VOCABULARIES)


def read_tokenizer(files: ModelFiles) -> PreTrainedTokenizerBase:
    """The tokenizer beside a model's weights; raises `ModelError` if there is none or it cannot be read."""
    if not has_tokenizer(files):
        raise ModelError(
            asked=f"the tokenizer of {files.origin}",
            found="there is none beside the weights",
            fix="Pass tokenizer= (an object, a folder or a hub id), or copy tokenizer.json beside config.json.",
        )
    files.fetch([files.gguf] if files.gguf else files.names & (_VOCABULARIES | _COMPANIONS))
    fix = "Copy or download its files again, or pass tokenizer=."
    with readable(f"the tokenizer of {files.origin}", fix, error=ModelError), quiet_libraries():
        if files.gguf is not None:
            return _tokenizer_in(files.folder / files.gguf)
        return AutoTokenizer.from_pretrained(  # pyrefly: ignore[bad-return]
            files.folder, trust_remote_code=files.trust_remote_code, local_files_only=True
        )


def _tokenizer_in(file: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a GGUF file, read in an empty folder, because transformers would also read files beside it."""
    with tempfile.TemporaryDirectory() as alone:
        Path(alone, file.name).symlink_to(file.absolute())
        words: Any = AutoTokenizer.from_pretrained(alone, gguf_file=file.name, local_files_only=True)
    words.name_or_path = str(file)
    return words
