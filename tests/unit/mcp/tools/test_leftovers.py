"""What a copy left out, as a model is told."""

from __future__ import annotations

from vmnest.mcp.tools import leftovers


def test_no_more_is_told_of_what_was_left_out_than_one_reads() -> None:
    skipped = [{"path": "p\n" * 1000, "reason": "a\x1b[31m thing"} for _ in range(1000)]
    told = leftovers.shorten({"source": "a", "skipped": skipped})
    assert (told["source"], told["complete"], told["skipped_count"]) == ("a", False, 1000)
    shown = told["skipped"]
    assert isinstance(shown, list)
    assert len(shown) == leftovers.MOST_SKIPPED
    assert (len(shown[0]["path"]), shown[0]["reason"]) == (leftovers.LONGEST_TOLD, "a [31m thing")


def test_what_no_copy_has_is_not_missed() -> None:
    assert leftovers.shorten({"skipped": []}) == {"skipped": [], "complete": True, "skipped_count": 0}
    pipe = [{"path": "p", "reason": "a named pipe"}]
    assert leftovers.shorten({"skipped": pipe}) == {"skipped": pipe, "complete": True, "skipped_count": 1}
