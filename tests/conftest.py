"""Fixtures that several test files share. No test touches a network or the user's own cache of models."""

import gc
import os
import shutil
import sys
import tempfile

# The hub library reads these when it is first imported, by whichever test comes first.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["HF_ASSETS_CACHE"] = tempfile.mkdtemp()

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import jaxtyping
import pytest
from hypothesis import settings

from tests import type_checks
from tests.paths import SHARED

type_checks.install()

CHROMIUM_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip

# The same examples every time: a check of a change does not fail for another reason. `make stress` draws fresh ones.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: the collector need not look through a million objects again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def types_and_threads() -> Iterator[None]:
    """Types are checked anew; a test leaves torch the threads that it found: others in the process count on them."""
    type_checks.next_test()
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else None
    yield
    if before is not None:
        assert torch.get_num_threads() == before, f"torch was left with another number of threads than {before}"


@pytest.fixture
def without_type_checks() -> Iterator[None]:
    """The tests check every annotation; a user has no such checks, and meets the refusal."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def stories() -> Path:
    """The folder of stories260K, a small language model that was really trained (Llama, grouped heads)."""
    folder = SHARED / "models" / "stories260K"
    if not (folder / "model.safetensors").exists():
        pytest.skip("the model stories260K is not on this machine")
    return folder


@pytest.fixture(scope="session")
def chromium_file() -> str:
    """Where Chromium lies; skipped where there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("no Chromium on this machine: pages are not looked at, images not drawn")
    return found


@pytest.fixture(scope="session")
def chromium(chromium_file):
    """A running headless Chromium, the only one of the process: Playwright allows one at a time."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_file, args=list(CHROMIUM_FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def look(chromium):
    """`look(page)` opens it as `Seen` does; whatever went wrong on a page shows when the test ends."""
    from tests.reports.seen import Seen

    opened: list[Seen] = []

    def open_page(*where, **how) -> Seen:
        opened.append(Seen(chromium, *where, **how))
        return opened[-1]

    yield open_page
    for seen in opened:
        seen.context.close()
    assert [trouble for seen in opened for trouble in seen.troubles] == []


@pytest.fixture(scope="session")
def word_tokenizer():
    """A tokenizer of as many words as the tiny models embed: `w0 w1 w2 ...`, split at spaces."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from tests.tiny_models import VOCAB

    words = {"<unk>": 0, **{f"w{i}": i for i in range(1, VOCAB)}}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", eos_token="<unk>",
        chat_template="w0 {% for m in messages %}{{ m['content'] }}{% endfor %} w1",
    )  # fmt: skip


@pytest.fixture(scope="session")
def tiny_folders(tmp_path_factory, word_tokenizer) -> Mapping[str, Path]:
    """One folder for each of the four families: a tiny random model and its tokenizer, as `save_pretrained` writes."""
    from interp.loading.quiet_libraries import quiet_libraries
    from tests.tiny_models import FAMILIES, tiny_model

    folders = {family: tmp_path_factory.mktemp(f"tiny-{family}") for family in FAMILIES}
    for family, folder in folders.items():
        with quiet_libraries():
            tiny_model(family).module.save_pretrained(folder)
            word_tokenizer.save_pretrained(folder)
    return folders


@pytest.fixture(scope="session")
def hub_cache(tmp_path_factory) -> Iterator[Path]:
    """A folder laid out as the hub's cache with two layers of Pythia-410M: real configuration, random weights."""
    from interp.loading.quiet_libraries import quiet_libraries
    from tests.hub_cache import TOKENIZERS, build_hub_cache

    if not TOKENIZERS.exists():
        pytest.skip("the real tokenizers are not on this machine")
    out = tmp_path_factory.mktemp("hub")
    with quiet_libraries():
        build_hub_cache("pythia-410m", out, n_layers=2)
    yield out
    shutil.rmtree(out)  # a quarter of a gigabyte, which pytest would keep for three more runs


@pytest.fixture
def use_cache(monkeypatch) -> Callable[[Path], None]:
    """`use_cache(folder)`: for this test the hub's cache is that folder, and there is no network."""
    from huggingface_hub import constants

    def use(folder: Path) -> None:
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    return use


@pytest.fixture
def use_hub(monkeypatch, tmp_path) -> Callable[[str], Path]:
    """`use_hub(url)`: for this test that server is the hub; returns the folder of an empty cache."""
    from huggingface_hub import constants

    def use(url: str) -> Path:
        cache = tmp_path / "cache"
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}")
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        return cache

    return use
