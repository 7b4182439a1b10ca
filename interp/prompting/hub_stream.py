"""A data set `hf:PATH:CONFIG:SPLIT:COLUMN`, one split of it opened for streaming; whatever fails is a `PromptError`."""

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from logging import CRITICAL
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import HfApi
from huggingface_hub.errors import (
    HfHubHTTPError,
    HTTPError,  # of whichever HTTP library the hub's is built on
)

from interp.errors import PromptError, optional_part
from interp.loading.hub_errors import Repository, explain
from interp.prompting.arrow_rows import class_names, class_of

if TYPE_CHECKING:
    from datasets import IterableDataset

HUB = "hf:"

FORM = f"The form is {HUB}PATH:CONFIG:SPLIT:COLUMN; parts at the end can go, others be empty ({HUB}folder::train:text)."

_CODE = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class HubName:
    """The parts of `hf:PATH:CONFIG:SPLIT:COLUMN`; an empty part is None, and then there should be one choice only."""

    path: str
    config: str | None = None
    split: str | None = None
    column: str | None = None

    @classmethod
    def parse(cls, name: str) -> "HubName":
        """The parts of a name that starts with `hf:`; `PromptError` for more than four, or without a path."""
        path, *others = name.removeprefix(HUB).split(":")
        if not path or len(others) > 3:
            found = f"it has {len(others) + 1} parts" if path else "it names no data set"
            raise PromptError(asked=f"the prompts {name!r}", found=found, fix=FORM)
        return cls(path, *(part or None for part in others))

    def __str__(self) -> str:
        return HUB + ":".join(part or "" for part in (self.path, self.config, self.split, self.column)).rstrip(":")

    def refused(self, found: str, fix: str) -> PromptError:
        """An error about this data set; a fix that speaks of the parts of the name shows them."""
        return PromptError(asked=f"the prompts {self}", found=found, fix=f"{fix} {FORM}" if " part" in fix else fix)


@dataclass(frozen=True)
class RowStream:
    """The rows of one split; `described` names it, `left_out` are columns that no prompt can hold, with the reason."""

    rows: "IterableDataset"
    described: str
    columns: tuple[str, ...] | None
    left_out: Mapping[str, str] = field(default_factory=dict)


def open_stream(where: HubName) -> RowStream:
    """Find the data set, choose configuration and split; no row is read yet."""
    with optional_part("hub", f"the prompts {where}"), _quiet():
        folder = _folder(where)
        if folder is not None:
            return _stream(where, folder, "")
        _refuse_name(where)
        try:
            revision = _revision(where)
        except (HTTPError, OSError) as lost:  # offline mode is an `OSError` too
            with _offline():
                return _stream(where, where.path, "from the cache", lost)
        return _stream(where, where.path, f"revision {revision[:12]}")


def read_rows(stream: RowStream, where: HubName, column: str, n: int) -> list[dict[str, Any]]:
    """The first `n` rows, classes by name; `PromptError` where there is none, no `column`, or where reading fails."""
    if stream.columns is not None:
        _refuse_column(where, column, stream.columns, stream.left_out)
    with _quiet(), _told(where):
        rows = list(islice(stream.rows, n))
    if not rows:
        raise where.refused("there is no row in it", "Name another split.")
    if stream.columns is None:
        _refuse_column(where, column, tuple(dict.fromkeys(name for row in rows for name in row)), {})
    classes = class_names(stream.rows.features and stream.rows.features.to_dict())
    return [row | {name: class_of(row.get(name), names) for name, names in classes.items()} for row in rows]


def _stream(where: HubName, path: str, version: str, lost: Exception | None = None) -> RowStream:
    """The split asked for, reduced to columns of plain values: images and lists are not even fetched.

    `lost` is why the hub is not asked for it.
    """
    from datasets import ClassLabel, Value, load_dataset_builder

    with _told(where, lost):
        builder = load_dataset_builder(path, where.config)
        splits = builder.as_streaming_dataset()
    assert isinstance(splits, dict)
    split = _split(where, list(splits))
    rows = splits[split]
    parts = [builder.config.name, split, version]
    described = f"{where.path} ({', '.join(part for part in parts if part and part != 'default')})"
    if rows.features is None:
        return RowStream(rows, described, None)
    columns = tuple(name for name, kind in rows.features.items() if isinstance(kind, Value | ClassLabel))
    left_out = {
        name: f"values of the type {type(kind).__name__}" for name, kind in rows.features.items() if name not in columns
    }
    return RowStream(rows.select_columns(list(columns)), described, columns, left_out)


def _split(where: HubName, splits: list[str]) -> str:
    """The split by name; without one, `train` or the only one there is."""
    shown = ", ".join(splits)
    if where.split is None:
        if "train" in splits or len(splits) == 1:
            return "train" if "train" in splits else splits[0]
        raise where.refused(f"no split is named, and it has {shown}", "Name one of them as the third part.")
    if where.split not in splits:
        raise where.refused(f"it has no split {where.split!r}; it has {shown}", "Name one of them (no slices).")
    return where.split


def _revision(where: HubName) -> str:
    """The commit that the hub has of a data set; raises as the hub library does where the hub cannot be reached."""
    from interp.loading.hub_files import SECONDS_TO_ANSWER

    try:
        info = HfApi().dataset_info(where.path, timeout=SECONDS_TO_ANSWER)
        if info.gated:
            HfApi().auth_check(info.id, repo_type="dataset")
    except HfHubHTTPError as error:
        raise _refusal(where, error) from error
    assert info.sha is not None
    return info.sha


def _refusal(where: HubName, error: Exception) -> PromptError:
    """What stands between us and a data set of the hub."""
    from datasets import config

    call = ", ".join(repr(part) for part in (where.path, where.config) if part)
    repository = Repository(
        "data set", f"https://huggingface.co/datasets/{where.path}", "with the owner: openai/gsm8k",
        f" (`datasets.load_dataset({call})`)", str(config.HF_DATASETS_CACHE), "HF_DATASETS_CACHE",
    )  # fmt: skip
    return where.refused(*explain(error, repository))


def _folder(where: HubName) -> str | None:
    """The local folder that the path names; None where there is none, refused where it is a file."""
    try:
        path = Path(where.path).expanduser()
        if path.is_dir():
            return str(path)
        is_file = path.is_file()
    except (OSError, RuntimeError):  # a name too long for the file system, or the home of nobody
        return None
    if is_file:
        raise where.refused("this is a file", f"Give it by its own name ({where.path}), or give its folder.")
    return None


def _refuse_name(where: HubName) -> None:
    """What no data set on the hub can be called."""
    from datasets.packaged_modules import _PACKAGED_DATASETS_MODULES as formats
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    if where.path in formats:  # `datasets` would read every such file below the current folder
        raise where.refused(f"{where.path} is a format, not a data set", "Name the folder that holds the files.")
    try:
        validate_repo_id(where.path)
    except HFValidationError as error:
        raise where.refused(
            "there is no such folder, and no data set on the hub can have this name",
            "Name a folder, or a data set of the hub with its owner (openai/gsm8k).",
        ) from error


def _refuse_column(where: HubName, column: str, columns: tuple[str, ...], left_out: Mapping[str, str]) -> None:
    if column in left_out:
        raise where.refused(f"{column!r} holds {left_out[column]}, not texts", "Name another column.")
    if column not in columns:
        shown = ", ".join(map(repr, columns)) or "no column of plain values"
        raise where.refused(
            f"it has no column {column!r}; it has {shown}",
            "Name the one that holds the texts as the fourth part.",
        )


def _unreadable(where: HubName, error: BaseException) -> PromptError:
    said = " ".join([f"{type(error).__name__}:", *_CODE.sub("", str(error)).strip().splitlines()[:2]])
    return where.refused(
        f"`datasets` cannot read it ({said})",
        "Name a configuration as the second part, or try it in Python and hand over the `Dataset`.",
    )


@contextmanager
def _told(where: HubName, lost: Exception | None = None) -> Iterator[None]:
    """What `datasets` and the libraries below it raise, in words.

    Where the hub was `lost` before and the cache was asked, that is what stands in the way.
    """
    import pyarrow
    from datasets.exceptions import DatasetsError

    # StopIteration: what `datasets` makes of an empty file
    plain = (OSError, ValueError, RuntimeError, ImportError, StopIteration)
    try:
        yield
    except ConnectionError as error:
        raise _refusal(where, lost or error) from error
    except (*plain, DatasetsError, pyarrow.ArrowException, HTTPError) as error:
        raise _unreadable(where, error) from error


@contextmanager
def _offline() -> Iterator[None]:
    """`datasets` asks its cache at once inside, and does not try the hub again and again."""
    from datasets import config

    before = config.HF_HUB_OFFLINE
    config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        config.HF_HUB_OFFLINE = before


@contextmanager
def _quiet() -> Iterator[None]:
    """No bar, warning or log line of `datasets` and the hub library; their errors are told in our words."""
    from datasets import utils as of_datasets
    from huggingface_hub import utils as of_hub

    with ExitStack() as restored:
        for library in (of_datasets, of_hub):
            restored.callback(library.logging.set_verbosity, library.logging.get_verbosity())
            library.logging.set_verbosity(CRITICAL)
            if not library.are_progress_bars_disabled():
                restored.callback(library.enable_progress_bars)
                library.disable_progress_bars()
        restored.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield
