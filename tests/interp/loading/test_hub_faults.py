"""A hub that stumbles and wires that break: told in words, and the cache stays sound."""

import hashlib
from pathlib import Path

import pytest

from interp.errors import ModelError
from interp.loading import hub_files
from interp.loading.hub_files import files_on_hub
from tests.hub_server import Fault, serving

WEIGHTS, CONFIG, INFO = "model.safetensors", "config.json", "revision/main"
FILES = [CONFIG, WEIGHTS, "tokenizer.json"]


@pytest.fixture
def waited(monkeypatch) -> list[float]:
    """The pauses of the hub library, which are not made."""
    waited: list[float] = []
    monkeypatch.setattr("time.sleep", waited.append)
    return waited


def fetched(repository: Path) -> Path:
    """The folder of the cache with all files of the model, each compared with the hub's."""
    files = files_on_hub("owner/name", "main")
    files.fetch(FILES)
    for name in FILES:
        assert (files.folder / name).read_bytes() == (repository / name).read_bytes()
    return files.folder


def refusal(repository: Path) -> str:
    with pytest.raises(ModelError) as caught:
        fetched(repository)
    return str(caught.value)


@pytest.fixture
def repository(tiny_folders) -> Path:
    return tiny_folders["llama"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(WEIGHTS, "status", 500, times=99), ("the error 500", "Try again in some minutes")),
        (Fault(INFO, "status", 503, times=99), ("the error 503", "Try again in some minutes")),
        (Fault(WEIGHTS, "status", 403, times=99), ("the error 403", "hf auth login")),
        (Fault(WEIGHTS, "status", 404, times=99), ("error 404",)),
        (Fault(WEIGHTS, "dropped", times=99), ("the hub cannot be reached (RemoteProtocolError",)),
        (Fault(WEIGHTS, "cut", times=99), ("the hub cannot be reached (RemoteProtocolError",)),
        (Fault(WEIGHTS, "short", times=99), ("the hub cannot be reached (OSError: Consistency check failed",)),
    ],
    ids=lambda each: f"{each.kind} {each.ending} {each.status}" if isinstance(each, Fault) else "",
)
def test_what_does_not_pass_is_told_and_leaves_nothing_damaged(use_hub, repository, waited, fault, words):
    with serving({"owner/name": repository}, fault) as hub:
        cache = use_hub(hub.url)
        message = refusal(repository)
        assert all(word in message for word in words), message
        for blob in cache.glob("models--*/blobs/*"):
            assert blob.suffix == ".incomplete" or checksum_of_blob(blob) == blob.name
        hub.faults.clear()
        fetched(repository)  # the same hub in good health


def checksum_of_blob(blob: Path) -> str:
    content = blob.read_bytes()
    git = hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
    return hashlib.sha256(content).hexdigest() if len(blob.name) == 64 else git


def test_a_slow_hub_is_not_waited_for_longer_than_it_may_take(use_hub, repository, waited, monkeypatch):
    monkeypatch.setattr(hub_files, "SECONDS_TO_ANSWER", 0.2)
    with serving({"owner/name": repository}, Fault(INFO, "slow", seconds=0.6)) as hub:
        use_hub(hub.url)
        assert "the hub cannot be reached (ReadTimeout" in refusal(repository)


@pytest.mark.parametrize(("kind", "status"), [("status", 503), ("status", 403), ("dropped", 0)])
def test_what_is_in_the_cache_serves_at_once_where_the_hub_stumbles_or_refuses(
    use_hub, repository, waited, kind, status
):
    with serving({"owner/name": repository}) as hub:
        use_hub(hub.url)
        first = fetched(repository)
        hub.faults.append(Fault(INFO, kind, status, times=99))
        assert fetched(repository) == first and waited == []
