import re
from pathlib import Path

from prefixscope.settings import Settings, load_settings
from prefixscope.settings_file import leaves

EXAMPLE = Path(__file__).parents[2] / "deploy" / "prefixscope.yml"
TEXT = EXAMPLE.read_text(encoding="utf-8")
# The key at the start of a line, commented out or not, indented as deep as its section.
KEY = re.compile(r"^( *)(?:# ?)?( *)(?:- )?([a-z_]+):", re.MULTILINE)


def _uncommented() -> str:
    """The file with every commented-out setting switched on, prose left alone."""
    return re.sub(r"^( *)# (?=[a-z_]+:)", r"\1", TEXT, flags=re.MULTILINE)


def test_example_as_it_is_means_the_defaults() -> None:
    assert load_settings(EXAMPLE, {}) == Settings()


def test_example_mentions_every_setting() -> None:
    mentioned = {key for _, _, key in KEY.findall(TEXT)}
    assert {path[-1] for path, _ in leaves(Settings)} - mentioned == {"token"}
    assert re.search(r"token_file: .*or token:", TEXT)


def test_defaults_shown_are_the_defaults(tmp_path: Path) -> None:
    lists = r"static|file_sd|http_sd|dns|prometheus|[a-z]+_label"
    text = re.sub(rf"^    (?:{lists}):.*\n", "", _uncommented(), flags=re.MULTILINE)
    text = re.sub(r"^    #  .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^  token_file:.*\n", "", text, flags=re.MULTILINE)
    file = tmp_path / "all.yml"
    file.write_text(text, encoding="utf-8")
    assert load_settings(file, {}) == Settings()
    assert text.count("\n  interval_seconds: 15\n") == 1
