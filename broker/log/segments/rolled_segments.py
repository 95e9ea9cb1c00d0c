"""The inactive segments of a partition, oldest first, with their sizes.

Only the owner of the partition has them; the list is the committed state, and the files are removed here. It never
includes the active segment.
"""

import logging
from pathlib import Path

from rotunda.broker.log.recovery import SegmentInfo
from rotunda.broker.log.segments.segment_files import LOG_SUFFIX, doom_segment_files, offsets_of, segment_file
from rotunda.broker.log.segments.segment_swap import SegmentSwap, commit_swap, complete_swaps, is_prepared

_log = logging.getLogger(__name__)


class RolledSegments:
    """The rolled segments of one partition.

    `infos` is oldest first; `size_bytes` is the size of all their log files.
    """

    __slots__ = ("_directory", "infos", "size_bytes")

    def __init__(self, directory: Path, infos: list[SegmentInfo]) -> None:
        self._directory = directory
        self.infos = infos
        self.size_bytes = sum(info.size_bytes for info in infos)

    def bases(self) -> list[int]:
        """Return the base offsets, ascending."""
        return [info.base_offset for info in self.infos]

    def append(self, base_offset: int, size_bytes: int) -> None:
        """Add the segment that was active until now."""
        self.infos.append(SegmentInfo(base_offset, size_bytes))
        self.size_bytes += size_bytes

    def forget_from(self, base_offset: int) -> list[int]:
        """Remove the segments from there on from the list: their roll was rolled back. Return their base offsets."""
        forgotten = [info.base_offset for info in self.infos if info.base_offset >= base_offset]
        self.infos = [info for info in self.infos if info.base_offset < base_offset]
        self.size_bytes = sum(info.size_bytes for info in self.infos)
        return forgotten

    def remove_below(self, offset: int, active_base: int) -> int:
        """Remove the segments whose records are all below `offset`, oldest first; return the number of bytes removed.

        `active_base` is the base offset of the active segment. Raises OSError; segments removed before the error are
        off the list.
        """
        before_bytes = self.size_bytes
        infos = self.infos
        while infos:
            following = infos[1].base_offset if len(infos) > 1 else active_base
            if following > offset:
                break
            doom_segment_files(self._directory, infos[0].base_offset)
            self.size_bytes -= infos.pop(0).size_bytes
        return before_bytes - self.size_bytes

    def try_swap(self, swap: SegmentSwap) -> bool:
        """Replace segments with a cleaned one; False if the segments are not those that the cleaner read.

        A failed step is retried once, or the swap is rolled back. Raises OSError when both fail.
        """
        covered = [info for info in self.infos if swap.first_base <= info.base_offset <= swap.last_base]
        found = SegmentSwap(
            covered[0].base_offset if covered else -1,
            covered[-1].base_offset if covered else -1,
            len(covered),
            sum(info.size_bytes for info in covered),
            swap.new_bytes,
        )
        if found != swap or not is_prepared(self._directory, swap):
            return False
        try:
            commit_swap(self._directory, [info.base_offset for info in covered])
        except OSError as error:
            _log.error("%s: swapping in segment %d: %s", self._directory, swap.first_base, error)
            done = complete_swaps(self._directory)
            self._look_again()
            return done
        first = self.infos.index(covered[0])
        self.infos[first : first + len(covered)] = [SegmentInfo(swap.first_base, swap.new_bytes)]
        self.size_bytes += swap.new_bytes - swap.old_bytes
        return True

    def _look_again(self) -> None:
        """Rebuild the list from the segments that still exist, with their sizes."""
        there = set(offsets_of(self._directory, LOG_SUFFIX))
        bases = [info.base_offset for info in self.infos if info.base_offset in there]
        sizes = [segment_file(self._directory, base, LOG_SUFFIX).stat().st_size for base in bases]
        self.infos = [SegmentInfo(*each) for each in zip(bases, sizes, strict=True)]
        self.size_bytes = sum(sizes)
