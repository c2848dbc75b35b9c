from __future__ import annotations

from pathlib import Path

from redisq.demo.ledger import Ledger, Line, Step, read


def test_a_line_can_be_read_before_the_file_is_closed(tmp_path: Path) -> None:
    lines = [Line(Step.TOOK, "AAA", 7), Line(Step.DONE, "AAA", 7, 1_250), Line(Step.SETTLED, "AAA", 7, note="dead")]
    path = tmp_path / "worker.jsonl"
    with Ledger(path) as ledger:
        for count, line in enumerate(lines, 1):
            ledger.write(line)
            assert read(path) == lines[:count]


def test_a_second_process_of_the_name_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    path = tmp_path / "worker.jsonl"
    for fence in (1, 2):
        with Ledger(path) as ledger:
            ledger.write(Line(Step.TOOK, "AAA", fence))
    assert [line.fence for line in read(path)] == [1, 2]
