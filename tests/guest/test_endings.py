"""When the end of a terminal's input is typed, and when it is typed again."""

from __future__ import annotations

from guest.agentd.endings import Ending

# What terminals.look finds: reads lines or keys, and something waits or nothing does.
LINES_WAITING, LINES_READ, KEYS_WAITING, KEYS_READ = (True, True), (True, False), (False, True), (False, False)
MANY = 50


def play(ending: Ending, look: tuple[bool, bool] | None, *, times: int = MANY) -> int:
    """Look so often; how many times the end was typed."""
    typed = 0
    for _ in range(times):
        if ending.is_over:
            break
        if ending.want_typing(look):
            ending.tell_typed(look)
            typed += 1
            break
    return typed


def test_nothing_is_typed_while_something_before_it_waits() -> None:
    ending = Ending()
    assert play(ending, LINES_WAITING) + play(ending, KEYS_WAITING) == 0
    assert not ending.is_over


def test_a_terminal_that_changes_at_every_look_is_not_at_rest() -> None:
    ending = Ending()
    assert sum(play(ending, look, times=1) for look in [LINES_READ, KEYS_READ] * MANY) == 0


def test_it_is_typed_once_for_a_reader_of_keys() -> None:
    ending = Ending()
    assert play(ending, KEYS_READ) == 1
    assert ending.is_over


def test_a_reader_of_lines_that_took_it_gets_no_other_whoever_comes_later() -> None:
    ending = Ending()
    assert play(ending, LINES_READ) == 1
    assert play(ending, LINES_READ) == 0
    assert ending.is_over


def test_a_reader_of_keys_gets_none_if_nobody_saw_the_one_before_him_wait() -> None:
    ending = Ending()
    assert play(ending, LINES_READ) == 1
    assert play(ending, KEYS_READ) == 0
    assert ending.is_over


def test_one_that_waited_when_the_mode_changed_is_typed_once_more() -> None:
    ending = Ending()
    assert play(ending, LINES_READ) == 1
    assert play(ending, LINES_WAITING) + play(ending, KEYS_WAITING) == 0
    assert play(ending, KEYS_READ) == 1
    assert ending.is_over


def test_one_that_waits_for_a_later_reader_of_lines_is_left_to_him() -> None:
    ending = Ending()
    assert play(ending, LINES_READ) == 1
    assert play(ending, LINES_WAITING) + play(ending, LINES_READ) == 0
    assert ending.is_over


def test_where_nobody_can_look_it_is_typed_at_once_and_once() -> None:
    ending = Ending()
    assert play(ending, None) == 1
    assert ending.is_over


def test_the_looks_become_rare_while_nothing_changes_and_frequent_again_when_something_does() -> None:
    ending = Ending()
    play(ending, LINES_WAITING)
    assert ending.pause == 0.5
    play(ending, KEYS_WAITING, times=1)
    assert ending.pause < 0.01
