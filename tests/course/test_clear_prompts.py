"""The built-in prompts are enough, varied, our own file format, and measured the way the file says."""

import json

from lab.course.clear_prompts import FEWEST_TOKENS, MOST_TOKENS, PROMPTS, clear_tokens, main, text_of


def stored():
    return json.loads(PROMPTS.read_text(encoding="utf-8"))["prompts"]


def test_there_are_enough_prompts_and_each_is_clear_for_a_while():
    entries = stored()
    assert len(entries) >= 64 and len({entry["text"] for entry in entries}) == len(entries)
    assert all(FEWEST_TOKENS <= entry["clear_tokens"] <= MOST_TOKENS for entry in entries)


def test_short_questions_and_passages():
    lengths = [len(entry["text"].split()) for entry in stored()]
    short = [length for length in lengths if length <= 30]
    assert len(short) >= 48 and min(short) >= 8
    long = [length for length in lengths if length > 30]
    assert len(long) >= 14 and min(long) >= 60 and max(long) <= 280


def test_the_file_is_as_the_command_writes_it():
    assert PROMPTS.read_text(encoding="utf-8") == text_of(stored())


def test_clear_tokens_ends_at_the_first_narrow_margin():
    assert clear_tokens([1.0, 0.5, 0.01, 0.009, 3.0]) == 3
    assert clear_tokens([]) == 0 and clear_tokens([0.0, 5.0]) == 0


def write_with(tmp_path, monkeypatch, counts):
    path = tmp_path / "prompts.json"
    path.write_text(text_of([{"text": f"prompt {i}", "clear_tokens": 20} for i in range(len(counts))]))
    monkeypatch.setattr("lab.course.clear_prompts.measure", lambda texts: counts)
    return path


def test_prompts_that_are_never_clear_are_dropped(tmp_path, monkeypatch, capsys):
    path = write_with(tmp_path, monkeypatch, [128, 15, 16])
    assert main(["--file", str(path)]) == 0
    kept = json.loads(path.read_text())["prompts"]
    assert [(entry["text"], entry["clear_tokens"]) for entry in kept] == [("prompt 0", 128), ("prompt 2", 16)]
    assert "2 of 3 prompts kept" in capsys.readouterr().out


def test_check_names_counts_that_are_too_large_and_writes_nothing(tmp_path, monkeypatch, capsys):
    path = write_with(tmp_path, monkeypatch, [128, 19])
    before = path.read_bytes()
    assert main(["--check", "--file", str(path)]) == 1
    assert "stored 20, measured 19: prompt 1" in capsys.readouterr().out and path.read_bytes() == before
    assert main(["--check", "--file", str(write_with(tmp_path, monkeypatch, [20, 21]))]) == 0
