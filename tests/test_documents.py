"""README and docs/: every command works, every link leads somewhere, outputs and generated pages are current.

A command is an indented line, or a line of a fenced block without a language, that starts with a program. Commands of a
document run in order in one directory, which holds the files that the document shows.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import documents
import pytest
import reference
import typer.main

from costmodel.cli import app, main
from costmodel.cli.examples import EXAMPLES

ROOT = Path(__file__).parent.parent
DOCUMENTS = documents.DOCUMENTS
PROGRAMS = ("costmodel", "make", "pip", "python", "CUDA_VISIBLE_DEVICES=0")
RUN = ("predict", "compare", "plan", "memory", "ir", "hardware")
"""Commands of costmodel that run here; the others are only parsed."""
PARSED = {
    "validate": "measures on a GPU",
    "collect": "measures on a GPU, for minutes",
    "train": "needs a collected dataset, and minutes",
    "dataset": "needs collected datasets",
}
"""Commands of costmodel that cannot run in a test -> the reason."""
ABSENT = ("my-gpu", "my-server", "trial")
"""Names of profiles and hosts that a reader makes; a command with one is only parsed."""
PIPED = re.compile(r" \| .*")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
CONTINUED = re.compile(r"\\\n\s+")
FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def commands(text: str) -> Iterator[str]:
    """Commands of a document, each on one line, without comments and what they are piped into."""
    text = CONTINUED.sub("", text)
    for language, block in FENCED.findall(text):
        if language in ("", "console", "sh"):
            yield from filter(is_command, map(bare, block.splitlines()))
    for line in FENCED.sub("", text).splitlines():
        if line.startswith("    ") and is_command(bare(line)):
            yield bare(line)


def bare(line: str) -> str:
    return PIPED.sub("", re.sub(r"\s+# .*", "", line)).strip()


def is_command(line: str) -> bool:
    return line.partition(" ")[0] in PROGRAMS


def parse(arguments: list[str]) -> None:
    """Parse a command line of costmodel without running it.

    Raises:
        ClickException or CostmodelError: an option or command does not exist, or a value is impossible.
    """
    group = typer.main.get_command(app)
    name, command, rest = group.resolve_command(
        group.make_context("costmodel", list(arguments), resilient_parsing=True), arguments
    )
    if name == "dataset":
        name, command, rest = command.resolve_command(
            command.make_context("dataset", rest, resilient_parsing=True), rest
        )
    command.make_context(name, list(rest))


def is_run(words: list[str]) -> bool:
    return words[0] == "costmodel" and words[1] in RUN and not set(words) & set(ABSENT)


ALL = [(name, line) for name in DOCUMENTS for line in commands(text_of(name))]


def test_commands_are_found() -> None:
    assert len(ALL) > 50
    assert {line.partition(" ")[0] for _, line in ALL} == set(PROGRAMS)
    assert ("README.md", "make predict") in ALL


@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for other in DOCUMENTS:
        documents.write_files(text_of(other), tmp_path)
    for line in commands(text_of(name)):
        words = shlex.split(line)
        if is_run(words):
            assert main(words[1:]) == 0, f"{line}: {capsys.readouterr().err}"
            capsys.readouterr()


@pytest.mark.parametrize("line", sorted({line for _, line in ALL if line.startswith("costmodel ")}))
def test_options_of_commands_exist(line: str) -> None:
    words = shlex.split(line)
    assert words[1] in RUN or words[1] in PARSED
    if "--help" not in words:
        parse(words[1:])


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_options_in_the_examples_of_the_help_exist(line: str) -> None:
    parse(shlex.split(line)[1:])


def test_a_wrong_option_is_found() -> None:
    with pytest.raises(Exception, match="--budgets"):
        parse(["collect", "--budgets", "20m"])


@pytest.mark.parametrize("line", sorted({line for _, line in ALL if line.startswith("python ")}))
def test_scripts_exist_and_have_the_options(line: str) -> None:
    _, *words = shlex.split(line)
    target = ["-m", words[1]] if words[0] == "-m" else [str(ROOT / words[0])]
    asked = subprocess.run([sys.executable, *target, "--help"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert asked.returncode == 0, asked.stderr
    for word in words:
        if word.startswith("-") and word != "-m":
            assert re.search(rf"(?<![\w-]){word}(?![\w-])", asked.stdout), f"{line}: no {word}"


@pytest.mark.parametrize("line", sorted({line for _, line in ALL if line.startswith("make")}))
def test_targets_of_make_exist(line: str) -> None:
    for target in line.split(" ")[1:]:
        assert re.search(rf"^{target}:", text_of("Makefile"), re.MULTILINE)


@pytest.mark.parametrize("line", sorted({line for _, line in ALL if line.startswith("pip ")}))
def test_extras_exist(line: str) -> None:
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    for extra in re.findall(r"\[(\w+)\]", line):
        assert extra in project["optional-dependencies"]
    for path in re.findall(r"-c (\S+)", line):
        assert (ROOT / path).exists()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    for link in LINK.findall(FENCED.sub("", text_of(name))):
        if re.match(r"https?:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / name).parent / path if path else ROOT / name
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), link


def anchors(text: str) -> set[str]:
    """Anchors of headings, as GitHub makes them."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text)}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_python_in_documents_is_python(name: str) -> None:
    for language, block in FENCED.findall(text_of(name)):
        if language == "python" and name != "docs/reference.md":
            lines = block.splitlines()
            indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
            ast.parse("\n".join(line[indent:] for line in lines))


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if documents.has_outputs(text_of(name))])
def test_outputs_are_current(name: str) -> None:
    assert documents.difference_of(ROOT / name) == "", "run scripts/documents.py"


def test_the_reference_is_made_from_the_docstrings() -> None:
    assert text_of("docs/reference.md") == reference.text(), "run scripts/reference.py"


def test_every_page_is_linked_from_readme() -> None:
    linked = set(LINK.findall(text_of("README.md")))
    assert {name for name in DOCUMENTS if name != "README.md"} <= linked


def test_readme_takes_ten_minutes() -> None:
    """About 200 words a minute, without tables of figures and outputs."""
    prose = re.sub(r"<!-- results.*?<!-- end of results -->", "", FENCED.sub("", text_of("README.md")), flags=re.DOTALL)
    assert len(prose.split()) < 2000


def test_models_known_to_be_one_graph_are_counted() -> None:
    table = json.loads((ROOT / "costmodel" / "zoo" / "one_graph.json").read_text(encoding="utf-8"))
    text = " ".join(text_of("docs/graph-breaks.md").split())
    counts = re.findall(r"with torch ([\d.]+), (\d+) of torchvision and (\d+) of timm", text)
    timm = {release: sum(name.startswith("timm:") for name in names) for release, names in table.items()}
    assert counts == [
        (release, str(len(names) - timm[release]), str(timm[release])) for release, names in table.items()
    ]


def test_the_glossary_is_short() -> None:
    assert len(re.findall(r"^\| (?!term|---)", text_of("docs/glossary.md"), re.MULTILINE)) <= 25
