"""Files that are there whole or not at all."""

import pytest

from interp.system.whole_files import writing


def test_the_file_is_the_old_one_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")
    with writing(path) as draft:
        draft.write_text("new")
        assert path.read_text() == "old"
        assert draft.parent == tmp_path and draft.name.endswith(".writing"), "the same disk, a name that is ignored"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("fault", [OSError("disk full"), KeyboardInterrupt()])
def test_a_draft_that_failed_leaves_the_old_file_and_nothing_else(tmp_path, fault):
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(type(fault)), writing(path) as draft:
        draft.write_text("ne")
        raise fault
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_block_that_writes_nothing_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError), writing(tmp_path / "a.json"):
        pass


def test_a_draft_that_a_killed_process_has_left_is_written_over(tmp_path):
    with writing(tmp_path / "a.json") as draft:
        draft.write_text("old")
    draft.write_text("half of something long")
    with writing(tmp_path / "a.json") as draft:
        draft.write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_processes_that_have_company_write_drafts_of_their_own(tmp_path):
    with writing(tmp_path / "a.json", by=1) as one, writing(tmp_path / "a.json", by=2) as other:
        assert one != other and one.name.endswith(".writing") and other.name.endswith(".writing")
        one.write_text("one")
        other.write_text("other")
    assert (tmp_path / "a.json").read_text() == "one", "the last to be whole"
