"""The accuracy tables of docs/accuracy.md are those of the shipped profiles."""

from __future__ import annotations

from pathlib import Path

import pytest
from markdown_tables import CPU_BEGIN, CPU_END, accuracy_markdown, cpu_markdown, replace_section

from costmodel.errors import DatasetError
from costmodel.profiles.profile import load_profile

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"


def test_the_page_shows_the_shipped_profiles_figures():
    profile = load_profile("nvidia-h200")
    assert replace_section(PAGE, accuracy_markdown(profile.card)) == PAGE.read_text()
    cards = [load_profile(name).card for name in ("amd-epyc-2-threads", "intel-xeon-16-threads")]
    assert replace_section(PAGE, cpu_markdown(cards), CPU_BEGIN, CPU_END) == PAGE.read_text()


def test_a_file_without_the_marks_is_refused(tmp_path: Path):
    file = tmp_path / "page.md"
    file.write_text("no marks")
    with pytest.raises(DatasetError, match="are missing"):
        replace_section(file, "text")
