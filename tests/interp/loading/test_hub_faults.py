"""A hub that stumbles and wires that break: asked again where that helps, told in words, and the cache stays sound."""

import hashlib
import shutil
from pathlib import Path

import pytest

from interp.errors import ModelError
from interp.loading import hub_files as access
from interp.loading.hub_files import files_on_hub
from tests.hub_server import Fault, checksum, serving

WEIGHTS, CONFIG, INFO = "model.safetensors", "config.json", "revision/main"
FILES = [CONFIG, WEIGHTS, "tokenizer.json"]


@pytest.fixture
def waited(monkeypatch) -> list[float]:
    """The pauses that were asked for, of ours and of the hub library, which are not made."""
    waited: list[float] = []
    monkeypatch.setattr(access.time, "sleep", waited.append)
    return waited


def fetched(repository: Path) -> Path:
    """The folder of the cache with all files of the model, each compared with the hub's."""
    files = files_on_hub("owner/name", "main")
    files.fetch(FILES)
    for name in FILES:
        assert checksum(files.folder / name) == checksum(repository / name)
        assert (files.folder / name).read_bytes() == (repository / name).read_bytes()
    return files.folder


def refusal(repository: Path) -> str:
    with pytest.raises(ModelError) as caught:
        fetched(repository)
    return str(caught.value)


def gone_through(use_hub, repository: Path, *faults: Fault) -> list[str]:
    """What was asked of a hub with these faults, which were all met, when everything was fetched in spite of them."""
    with serving({"owner/name": repository}, *faults) as hub:
        use_hub(hub.url)
        fetched(repository)
    assert not any(fault.times for fault in hub.faults)
    return hub.asked


@pytest.fixture
def repository(tiny_folders) -> Path:
    return tiny_folders["llama"]


@pytest.mark.parametrize(
    ("ending", "status"), [(INFO, 500), (CONFIG, 500), (WEIGHTS, 500), (INFO, 503), (WEIGHTS, 502), (WEIGHTS, 504)]
)
def test_an_error_of_the_hub_is_asked_again(use_hub, repository, waited, ending, status):
    gone_through(use_hub, repository, Fault(ending, "status", status, times=2))
    assert sum(waited) >= sum(access.PAUSES)


@pytest.mark.parametrize("ending", [INFO, WEIGHTS])
def test_a_hub_that_is_busy_is_waited_for_as_long_as_it_says(use_hub, repository, waited, ending):
    gone_through(use_hub, repository, Fault(ending, "status", 429, {"Retry-After": "7"}))
    assert any(7 <= seconds <= 8 for seconds in waited)


def test_a_hub_that_is_busy_for_long_says_how_long(use_hub, repository, waited):
    with serving({"owner/name": repository}, Fault(INFO, "status", 429, {"Retry-After": "3000"}, times=9)) as hub:
        use_hub(hub.url)
        assert "(429)\n  Wait 3000 seconds" in refusal(repository)
    assert waited == []


@pytest.mark.parametrize("ending", [INFO, CONFIG, WEIGHTS])
def test_a_dropped_connection_is_asked_again(use_hub, repository, waited, ending):
    gone_through(use_hub, repository, Fault(ending, "dropped"))


@pytest.mark.parametrize("ending", [CONFIG, WEIGHTS])
@pytest.mark.parametrize("kind", ["cut", "short", "flipped"])
def test_a_body_that_is_truncated_or_has_a_wrong_checksum_is_fetched_again(use_hub, repository, waited, ending, kind):
    asked = gone_through(use_hub, repository, Fault(ending, kind))
    assert sum(each.startswith("GET") and each.endswith(ending) for each in asked) == 2


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault(WEIGHTS, "status", 500, times=99), ("the error 500", "Try again in some minutes")),
        (Fault(INFO, "status", 503, times=99), ("the error 503", "Try again in some minutes")),
        (Fault(WEIGHTS, "status", 403, times=99), ("refused access (403)", "hf auth login")),
        (Fault(WEIGHTS, "status", 401, times=99), ("refused access (401)", "hf auth login")),
        (Fault(WEIGHTS, "status", 404, times=99), ("error 404",)),
        (Fault(WEIGHTS, "dropped", times=99), ("the hub cannot be reached (RemoteProtocolError",)),
        (Fault(WEIGHTS, "cut", times=99), ("the hub cannot be reached (RemoteProtocolError",)),
        (Fault(WEIGHTS, "short", times=99), ("a file was damaged in every download", "nothing damaged was kept")),
        (Fault(WEIGHTS, "flipped", times=99), ("has not the checksum that the hub names", "nothing damaged was kept")),
        (Fault(CONFIG, "flipped", times=99), ("config.json has not the checksum", "nothing damaged was kept")),
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
    monkeypatch.setattr(access, "SECONDS_TO_ANSWER", 0.2)
    with serving({"owner/name": repository}, Fault(INFO, "slow", seconds=0.6)) as hub:
        use_hub(hub.url)
        assert "the hub cannot be reached (ReadTimeout" in refusal(repository)


@pytest.mark.parametrize("kind", ["status", "dropped"])
def test_what_is_in_the_cache_serves_at_once_where_the_hub_stumbles(use_hub, repository, waited, kind):
    with serving({"owner/name": repository}) as hub:
        use_hub(hub.url)
        first = fetched(repository)
        hub.faults.append(Fault(INFO, kind, 503, times=99))
        assert fetched(repository) == first and waited == []


def test_a_blob_that_was_damaged_on_the_disk_is_not_what_we_vouch_for(tmp_path, use_cache):
    """Only what was just fetched is compared, by the name that the cache keeps it under."""
    use_cache(tmp_path)
    (tmp_path / "blobs").mkdir()
    blob = tmp_path / "blobs" / ("0" * 64)
    blob.write_text("anything")
    (tmp_path / "config.json").symlink_to("blobs/" + "0" * 64)
    with pytest.raises(OSError, match="checksum"):
        access._refuse_damaged(tmp_path / "config.json")
    assert not blob.exists() and not (tmp_path / "config.json").exists()
    shutil.copy(__file__, tmp_path / "plain")
    access._refuse_damaged(tmp_path / "plain")  # a file that is no link has no name to be compared with
