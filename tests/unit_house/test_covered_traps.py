from pathlib import Path

from tests.unit_house import covered_traps

ROOT = Path(__file__).parents[2]
PROMISED = {
    *range(1, 7), *range(8, 15), 18, 19, 21, 22, 25, 34, 42, 43, *range(45, 50),
    *range(51, 56), *range(57, 64), *range(65, 79),
}  # fmt: skip


def test_page_is_current() -> None:
    expected = covered_traps.page(covered_traps.covered(ROOT / "tests"))
    assert covered_traps.PAGE.read_text(encoding="utf-8") == expected, "run `make traps`"


def test_every_promised_trap_has_a_test() -> None:
    assert PROMISED - set(covered_traps.covered(ROOT / "tests")) == set()


def test_every_covered_trap_has_a_title() -> None:
    assert set(covered_traps.covered(ROOT / "tests")) <= set(covered_traps.TITLES)


def test_numbers_come_from_function_names_ids_and_case_names(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    (tests / "cases" / "t09_ranks").mkdir(parents=True)
    (tests / "cases" / "t10_occupancy.yaml").touch()
    (tests / "cases" / "tab_separated.yaml").touch()
    (tests / "test_some.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('row', [pytest.param(1, id='t63_text'), 'plain'])\n"
        "def test_rows(row): ...\n"
        "def test_t43_t65_times(): ...\n"
        "def test_that_t3_is_elsewhere(): ...\n"
        "def helper_t4_(): ...\n"
        "async def test_t052_content_type(): ...\n"
    )
    assert covered_traps.covered(tests) == {
        9: ["tests/cases/t09_ranks"],
        10: ["tests/cases/t10_occupancy.yaml"],
        43: ["tests/test_some.py::test_t43_t65_times"],
        52: ["tests/test_some.py::test_t052_content_type"],
        63: ["tests/test_some.py::test_rows[t63_text]"],
        65: ["tests/test_some.py::test_t43_t65_times"],
    }
