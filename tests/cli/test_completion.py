"""Shell completion: names without torch, the words of each shell, examples in the help."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from costmodel import zoo
from costmodel.cli import main
from costmodel.cli.completion import MODES, complete_hardware, complete_models, complete_modes
from costmodel.cli.examples import EXAMPLES
from costmodel.profiles.profile import list_profiles


def ask(shell: str, words: str, **environment: str) -> tuple[list[str], int, bool]:
    """Answer to a shell that completes `words`, its exit status, and whether torch was imported."""
    asked = {"_COSTMODEL_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": words, "COMP_WORDS": words}
    asked |= {"COMP_CWORD": str(len(words.split(" ")) - 1), "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    code = (
        "import atexit, sys; sys.argv = ['costmodel']; from costmodel.cli import main\n"
        "atexit.register(lambda: print('torch' in sys.modules, file=sys.stderr))\nsys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | asked | environment, capture_output=True, text=True, check=False
    )
    return done.stdout.splitlines(), done.returncode, done.stderr.strip() != "False"


class TestShells:
    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            ("costmodel predict densenet1", ["densenet121", "densenet161", "densenet169"]),
            ("costmodel predict timm : mobilevit_x", ["mobilevit_xs", "mobilevit_xxs"]),  # bash ends a word at a colon
            ("costmodel predict alexnet --hardware nv", ["nvidia-h100", "nvidia-h200"]),
            ("costmodel validate alexnet --mode red", ["reduce-overhead"]),
            ("costmodel hardware nvidia-h2", ["nvidia-h200"]),
            ("costmodel comp", ["compare"]),
            ("costmodel compare --fail", ["--fail-on-regression"]),
            ("costmodel predict alexnet --precision b", ["bfloat16"]),
        ],
    )
    def test_bash(self, words: str, expected: list[str]) -> None:
        assert ask("bash", words) == (expected, 0, False)

    def test_zsh(self) -> None:
        answer, status, has_torch = ask("zsh", "costmodel predict timm:mobilevit_x")
        assert answer == ['_arguments \'*: :(("timm\\\\:mobilevit_xs"', '"timm\\\\:mobilevit_xxs"))\'']
        assert (status, has_torch) == (0, False)
        assert ask("zsh", "costmodel predict ./ne") == (["_files"], 0, False)

    def test_fish(self) -> None:
        assert ask("fish", "costmodel predict densenet16") == (["densenet161", "densenet169"], 0, False)
        asking = {"_TYPER_COMPLETE_FISH_ACTION": "is-args"}
        assert ask("fish", "costmodel predict densenet16", **asking) == ([], 0, False)
        assert ask("fish", "costmodel predict ./ne", **asking) == ([], 1, False)  # the shell completes files


class TestNames:
    def test_torchvision_models_are_all_there(self) -> None:
        assert set(zoo.load_torchvision().models.list_models()) == set(complete_models("")) - {"timm:", "hf:"}

    def test_timm_models_are_all_there(self) -> None:
        timm = pytest.importorskip("timm")
        assert {f"timm:{name}" for name in timm.list_models()} == set(complete_models("timm:"))

    def test_transformers_models_are_all_there(self) -> None:
        pytest.importorskip("transformers")
        from costmodel.zoo.transformers_models import vision_model_types

        assert {f"hf:{name}" for name in vision_model_types()} == set(complete_models("hf:"))

    def test_other_sources_have_no_names(self) -> None:
        assert complete_models("net.py:") == []

    def test_a_library_that_is_not_installed_has_no_names(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("costmodel.cli.completion.find_spec", lambda _: None)
        assert complete_models("timm:") == []
        assert complete_models("hf:") == []
        assert complete_models("") == ["hf:", "timm:"]

    def test_profiles_and_modes(self) -> None:
        assert complete_hardware("") == list(list_profiles())
        assert complete_modes("") == list(MODES)


@pytest.mark.parametrize("command", EXAMPLES)
def test_the_help_of_each_command_ends_with_its_examples(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main([*command.split(), "--help"]) == 0
    text = re.sub(r" +", " ", capsys.readouterr().out)
    end = text[text.rindex("Example") :]
    assert [line.strip() for line in end.splitlines()[1:] if line.strip()] == list(EXAMPLES[command])


def test_every_command_has_examples() -> None:
    from costmodel.cli import app, dataset

    names = {command.callback.__name__ for command in app.registered_commands if command.callback}
    names |= {f"dataset {command.callback.__name__}" for command in dataset.registered_commands if command.callback}
    assert names == set(EXAMPLES)
    assert all(len(line) < 100 for lines in EXAMPLES.values() for line in lines)
