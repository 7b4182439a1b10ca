"""What people type in the shell: it works, or is answered with what to type, before anything loads."""

import io
import re
import signal
import sys
import warnings
from functools import partial
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

import interp
from interp.cli.app import app, main
from interp.errors import InterpError, UsageError
from interp.system.signals import Stopped
from tests.paths import ROOT

TUNNEL = "tunnel:bijection-gpt-neox"


def answer(monkeypatch, capsys, words: str) -> tuple[int, str]:
    """The exit code of a command and all that it says."""
    monkeypatch.setattr(sys, "argv", ["interp", *words.split()])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    return int(ended.value.code or 0), f"{said.out}{said.err}"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run --modle x", "Did you mean --model"),
        ("run --batch-size 0", "Give a whole number from 1"),
        ("run --batch_sise 8", "Did you mean --batch-size"),
        ("lens fit --batch-size 8", "leave it out"),
        (f"run {TUNNEL} --probe orthogonality,heads --layer 99", "layer"),
        (f"run {TUNNEL} --probe heads --layer 3", "no field `layer` in heads"),
        ("check --layer 3", "A setting of a probe"),
        (f"plan {TUNNEL} --model phi-2", "Name one"),
        ("plan tunnel:bijektion-gpt-neox", "Did you mean bijection-gpt-neox"),
        ("generate phi-2 hello", "A text follows --prompt"),
        ("view runs more", "extra argument"),
        ("run --seed one", "valid integer"),
        ("run --seed", "requires an argument"),
        ("study", "missing argument"),
        ("certify manifold --scale lrge", "Known: default, full, smoke"),
        ("--foo", "--version"),
        ("run --output-dir x", "It is `out`"),
        ("run --prompts -", "standard input is empty"),
        ("help rnu", "Did you mean run"),
        ("list modles", "models"),
        ("run --set manifold.scaling=raw", "centred, zscored"),
        ("plan --probe heeds", "Did you mean heads"),
        ("study sticky_chain --set n_step=3", "Did you mean n_steps"),
        ("replicate papper3", "Did you mean paper3"),
        ("tunnel rebuild bijection-lama", "bijection-llama"),
        ("tunnel trian bijection", "Did you mean train"),
        ("rnu", "Did you mean run"),
        ("run --prompt A --prompts fiction", "Leave one out"),
        ("run --prompts .", "hf:. reads the data set in it"),
        ("run --prompts=", "run --prompts=: a value is empty"),
        ("run --out=", "run --out=: a value is empty"),
        ("plan texts.csv", "those of prompts follow --prompts"),
        (f"plan {TUNNEL},phi-2", "this reads one model"),
        ("plan --prompts mixed,sula", "this reads one prompt set"),
        ("plan -m phi-2 -m pythia-70m", "this reads one model"),
        (f"lens fit {TUNNEL} --out .", "it is a folder"),
    ],
)
def test_what_is_not_taken_is_answered_with_what_is(words, said, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.csv").touch()
    code, told = answer(monkeypatch, capsys, words)
    assert code == 2 and said in told and "Traceback" not in told and "╭" not in told
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "words",
    [["run", "--out", ""], ["run", "-o", ""], ["compare", "a", "b", "--out", ""], ["export", "a", "--out="],
     ["power", ""], ["certify", "heads", "--out", ""], ["tunnel", "train", "coin", "--out", ""],
     ["run", "--adapter", ""], ["run", "--checkpoints", ""], ["lens", "show", ""]],
    ids=" ".join,
)  # fmt: skip
def test_an_empty_value_is_refused_and_not_the_current_folder(words, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, UsageError) and "a value is empty" in str(done.exception)
    for write in (partial(interp.certify, "heads"), partial(interp.run, TUNNEL), interp.open_run):
        with pytest.raises(UsageError, match="the name is empty"):
            write("") if write is interp.open_run else write(out="")
    assert not list(tmp_path.iterdir())


def test_a_command_that_needs_more_memory_than_there_is_says_so(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "interp.wind_tunnels.training.sampling.available_bytes", Mock(side_effect=MemoryError("Unable"))
    )
    code, told = answer(monkeypatch, capsys, f"tunnel eval {TUNNEL} -q")
    assert code == 1 and "memory ran out (Unable" in told and "Traceback" not in told


@pytest.mark.parametrize(
    ("texts", "piped"),
    [
        ("--prompts -", "w1 w2 w3\n\nw4 w5\n"),
        ("--prompts -", '{"text": "w1 w2 w3", "n": 1}\n{"text": "w4 w5", "n": 2}\n'),
        ("--prompts -", '\ufeff{"text": "w1 w2 w3", "n": "a\u2028b"}\n{"text": "w4 w5", "n": "c"}\n'),
        ("--prompts -", "\ufefftext;n\r\nw1 w2 w3;1\r\nw4 w5;2\r\n"),
        ("--prompts -", '"text","n"\n"w1 w2 w3",1\n"w4 w5",2\n'),
        ("--prompts -", "sep=;\ntext;n\nw1 w2 w3;1\nw4 w5;2\n"),
        ("--prompt w1-w2-w3 --prompt w4-w5", ""),
    ],
)
@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["generate", "--n-tokens", "1", "--model"], "w4 w5"),
        (["plan", "-p", "attention_entropy", "--batch-size", "1", "--model"], "texts: attention_entropy  1  2 "),
        (["run", "-p", "attention_entropy", "--draw", "0", "-q", "-o", ".", "--model"], "report.html"),
    ],
    ids=lambda given: given[0],
)
def test_texts_come_from_a_pipe_or_from_the_command(command, shown, texts, piped, tiny_folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [*command, str(tiny_folders["llama"]), *(each.replace("-w", " w") for each in texts.split())]
    done = CliRunner().invoke(app, words, input=piped)
    assert done.exit_code == 0 and shown in done.stdout and '"n"' not in done.stdout, done.output


def test_a_damaged_line_of_piped_json_lines_is_refused():
    done = CliRunner().invoke(app, ["plan", TUNNEL, "--prompts", "-"], input='{"text": "w1"}\n{"text": "w2\n')
    assert "standard input, line 2: it is not JSON" in str(done.exception)


def test_sets_of_prompts_that_are_repeated_are_all_read(tiny_folders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b.tsv"):
        (tmp_path / name).write_text("text\nw1 w2\nw3 w4\nw5 w6 w7\nw2 w4\n", encoding="utf-8")
    words = ["run", str(tiny_folders["llama"]), "-p", "attention_entropy", "-o", "."]
    done = CliRunner().invoke(app, [*words, "--prompts", "a.txt", "--prompts", "b.tsv"])
    assert "on a.txt: measured" in done.stdout and "on b.tsv: measured" in done.stdout, done.output


def test_a_warning_in_the_shell_is_a_sentence_without_a_line_of_code(monkeypatch, capsys):
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    answer(monkeypatch, capsys, "--version")
    assert warnings.formatwarning("it goes on without", RuntimeWarning, "f.py", 3) == "warning: it goes on without\n"


def test_the_page_of_the_first_run_lists_every_exit_code():
    page = (ROOT / "docs/start/first-run.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| (\d+(?:, \d+)*) \|", page, re.MULTILINE)
    stopped = (Stopped(each).exit_code for each in (signal.SIGINT, signal.SIGTERM))
    codes = [0, InterpError.exit_code, UsageError.exit_code, *stopped]
    assert [int(code) for row in listed for code in row.split(", ")] == codes


def test_help_of_a_run_and_a_list_alone_say_what_there_is():
    few, every, by_word = (CliRunner().invoke(app, words).stdout for words in (
        ["run", "--help"], ["run", "--help-all"], ["help", "run"],
    ))  # fmt: skip
    assert len(few.splitlines()) <= 2 * 50 and "--trust-remote-code" not in few and "--help-all" in few
    assert "--trust-remote-code" in every and "--gguf" in every and "--set" in every
    assert by_word == few
    assert "probes [NAME]" in CliRunner().invoke(app, ["list"]).stdout
