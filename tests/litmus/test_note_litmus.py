"""A note in a batch changes in one step: no other process, and so no replacement after a SIGKILL, sees it half written.

`struct.pack_into` would fail this: it zeroes its target before it writes.
"""

import struct

from rotunda.broker.partitions.produce.append_notes import NOT_APPENDED, write_note
from rotunda.shm.words import words_of
from tests.litmus.two_processes import run_together, segment_of

ROUNDS = 200_000
APPENDED_AT = 0x0123_4567_89AB_CDEF
STOP = 1


def test_a_note_is_one_of_the_values_that_were_written() -> None:
    with segment_of(4096) as segment:
        view = segment.view
        words = words_of(view, 0, 128)
        write_note(view, 64, NOT_APPENDED)

        def write() -> None:
            for _ in range(ROUNDS):
                write_note(view, 64, APPENDED_AT)
                write_note(view, 64, NOT_APPENDED)
            words[0] = STOP

        def watch() -> None:
            allowed = {struct.pack(">q", APPENDED_AT), struct.pack(">q", NOT_APPENDED)}
            seen = set()
            while words[0] != STOP:
                seen.add(bytes(view[64:72]))
            assert seen <= allowed, seen

        run_together(write, watch)
