"""Causes for the end of a program."""

from trainables.programs.exit_causes import failure


def test_a_full_disk_that_a_program_got_over_does_not_excuse_what_ended_it():
    got_over = "warning: No space left on device\nTraceback (most recent call last):\n"
    assert failure(1, f"{got_over}KeyError: 1", among_peers=False).kind == "user"
