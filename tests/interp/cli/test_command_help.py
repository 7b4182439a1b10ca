"""Help with examples that work, names that are nearly right, the shell's completion, and what must be trusted."""

import ast
import re
import sys

import pytest
from typer.testing import CliRunner

from interp.cli import completion as completing
from interp.cli.app import app
from interp.registry import entries
from interp.running.choose_probes import GROUPS
from tests.command_lines import all_commands, parsed
from tests.interp.cli.test_cli import is_within
from tests.interp.cli.test_habits import answer
from tests.one_process import in_one_process
from tests.paths import ROOT

COMMANDS = all_commands()


def test_examples_are_walked_and_wrong_options_seen():
    assert {"interp run", "interp tunnel train", "interp tunnel sweep"} <= set(COMMANDS)
    assert not any(name == "interp tunnel" for name in COMMANDS)
    with pytest.raises(Exception, match="No such option"):
        parsed("interp run --modle pythia-410m")
    with pytest.raises(Exception, match="no such command"):
        parsed("interp tunnel fly")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_shows_an_example_that_can_be_parsed(name):
    shown = CliRunner().invoke(app, [*name.split()[1:], "--help"])
    assert shown.exit_code == 0
    assert f"Example: {name} " in " ".join([*shown.stdout.split(), ""])
    options = shown.stdout.partition("─ Options ")[2]
    assert not any(kind in options for kind in ("<bool>", "<list[", " range>")), "a flag takes nothing"
    assert not any(option in options for option in ("--install-completion", sys.executable))
    example = (COMMANDS[name].epilog or "").removeprefix("Example: ")
    assert parsed(example).command.name == name.split()[-1]


def test_every_option_that_a_message_names_is_one():
    every = [each for command in COMMANDS.values() for each in command.params]
    options = {
        "--help",
        "--help-all",
        "--version",
        *(name for each in every for name in each.opts + each.secondary_opts),
    }
    named = set()
    for folder in ("interp", "probes", "prompts", "reports", "wind_tunnels"):
        for path in (ROOT / folder).rglob("*.py"):
            texts = (
                each.value for each in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(each, ast.Constant)
            )
            sentences = (text for text in texts if isinstance(text, str) and " " in text and "git " not in text)
            named |= {name for text in sentences for name in re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text)}
    assert len(named) > 30 and named <= options, named - options


COMPLETED = [
    ("interp run --probe manif", ["manifold"]),
    ("interp plan -p manifold,caus", ["manifold,causal"]),
    ("interp run --prompts sula-", ["sula-250"]),
    ("interp check --model llama-3.2-", ["llama-3.2-1b", "llama-3.2-3b"]),
    ("interp check --model phi-", ["phi-2"]),
    ("interp study sticky", ["sticky_chain"]),
    ("interp tunnel train hmm-", ["hmm-fixed"]),
    ("interp tunnel swe", ["sweep"]),
    ("interp rep", ["replicate", "report"]),
    ("interp plan llama-3.2-", ["llama-3.2-1b", "llama-3.2-3b"]),
    ("interp certify manif", ["manifold"]),
    ("interp list stu", ["studies"]),
]


@pytest.fixture(scope="module")
def completed(tmp_path_factory):
    """What bash is offered for the last of the words, cut as bash cuts them."""
    asked = [line.split() for line, _ in COMPLETED]
    given = {"_INTERP_COMPLETE": "complete_bash"}
    words = [([], given | {"COMP_WORDS": " ".join(each), "COMP_CWORD": str(len(each) - 1)}) for each in asked]
    done = in_one_process(words, tmp_path_factory.mktemp("completed"))
    return {line: each for (line, _), each in zip(COMPLETED, done, strict=True)}


@pytest.mark.parametrize("line, offered", COMPLETED)
def test_the_shell_completes_names_without_importing_torch(completed, line, offered):
    assert completed[line].out.split() == offered
    assert not {"torch", "pandas"} & {*completed[line].imported}


def test_completion_can_be_installed_and_offers_what_there_is():
    assert set(completing.probes("")) == {*entries("probe"), *GROUPS}
    assert completing.probes("manifold,mani") == []  # once is enough
    assert completing.tasks("") == [*entries("tunnel")]
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).stdout


def test_a_completion_takes_less_than_a_second():
    given = {"_INTERP_COMPLETE": "complete_bash", "COMP_WORDS": "interp run --model tun", "COMP_CWORD": "3"}
    code = f"import os, sys; os.environ.update({given}); sys.argv = ['interp']\nfrom interp.cli import main\n"
    assert is_within(1.0, "-c", code + "try: main()\nexcept SystemExit: pass")


@pytest.mark.parametrize("command", ["interp run", "interp check"])
def test_the_help_says_what_is_risked(command):
    said = {option.opts[0]: option.help for option in COMMANDS[command].params}
    assert "can run code" in said["--allow-pickle"] and "your rights" in said["--trust-remote-code"]


def test_too_few_problems_are_refused_before_the_model_reads_them(monkeypatch, capsys, tiny_folders, tmp_path):
    def never(*_, **__):
        raise AssertionError("the prompts were read")

    monkeypatch.setattr("interp.editing.conditions.capture", never)
    words = f"run --model {tiny_folders['llama']} --probe sula --out {tmp_path} --n-pool"
    code, said = answer(monkeypatch, capsys, f"{words} 10")
    assert code == 2 and "2 problems" in said and "--n-pool" in said
    with pytest.raises(AssertionError, match="were read"):
        answer(monkeypatch, capsys, f"{words} 70")
