"""moves: small changes of a plan at one place: what waits there is dropped and made again later, or the reverse.

`drop`: a value that is in memory at a crowded place, but needed only later, is let go and made again just before that
need, from what is there then. What is missing for it is held a little longer where there is room, and else made again,
too. `hold`: a run is left out, since what it makes is held from before, where there is room for it. Either can leave
runs behind that nothing needs any more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lowtide.planning.account import Account, Accountant, Flags, Ints, Row


@dataclass(frozen=True, slots=True)
class Waiting:
    """A value that is in memory at a place without being needed there.

    Attributes:
        value: its id.
        stay: its stay, -1 if it is kept.
        since: the first place from which on it waits.
        needed: the place that needs it next.
    """

    value: int
    stay: int
    since: int
    needed: int


class Mover:
    """Changes rows of one step.

    Attributes:
        room: places are full at so many bytes.
        most_runs: a change that would add more runs than this is left alone.
    """

    def __init__(self, accountant: Accountant, most_runs: int = 400) -> None:
        self.accountant = accountant
        self.most_runs = most_runs
        self.room = 0
        fronts = accountant.fronts
        self.size = accountant.size
        must = {v for v, f in fronts.facts.items() if f.always or f.free}
        values = accountant.step.values
        self.can_drop = np.zeros(accountant.n_values, dtype=np.bool_)
        self.can_keep = np.zeros(accountant.n_values, dtype=np.bool_)
        for v in fronts.facts:
            self.can_drop[v] = v not in must and not fronts.stuck[values[v].op]
            self.can_keep[v] = v not in must and values[v].overwritten < 0

    def waiting(self, a: Account, place: int) -> list[Waiting]:
        """What waits at `place` and can be made again, largest first."""
        found: list[Waiting] = []
        for s in np.flatnonzero((a.starts < place) & (a.ends > place)).tolist():
            low, high = int(a.first_entry[s]), int(a.first_entry[s + 1])
            k = low + int(np.searchsorted(a.places[low:high], place))
            if k == high or a.places[k] == place:
                continue
            since = int(a.untils[low:k].max())
            if since <= place:
                found.append(Waiting(int(a.values[s]), s, since, int(a.places[k])))
        at = np.flatnonzero((a.kept_starts <= place) & (a.kept_ends > place))
        for v in a.kept[at].tolist():
            if not self.can_drop[v]:
                continue
            needs = self.needs_of_kept(a, v)
            k = int(np.searchsorted(needs, place))
            if k < len(needs) and needs[k] == place:
                continue
            if k < len(needs):
                found.append(Waiting(v, -1, int(needs[k - 1]) + 1 if k else 0, int(needs[k])))
        found.sort(key=lambda w: (-int(self.size[w.value]), w.value))
        return found

    def needs_of_kept(self, a: Account, v: int) -> Ints:
        """The places that need a kept value."""
        moments = [m for m, _ in self.accountant.hands.get(v, ())]
        values, places = a.kept_reads
        return np.unique(np.concatenate((places[values == v], a.moment_place[moments])))

    def drop(self, a: Account, w: Waiting, place: int, cheap_again: bool = False) -> Row | None:
        """`w` let go at `place` and made again when it is needed.

        Args:
            cheap_again: make inputs without FLOPs again rather than holding them.
        """
        if w.stay >= 0:
            return self._made_at(a, w, w.needed, cheap_again)
        needs = self.needs_of_kept(a, w.value)
        first = int(needs[0])
        row = self._made_at(a, w, first, cheap_again)
        if row is None or first > place:
            return row
        # It waits between two needs: made for the first, it is now a stay that can be dropped as any other.
        later = place + len(row.ops) - len(a.row.ops)
        a = self.accountant.account(row)
        for other in self.waiting(a, later):
            if other.value == w.value and other.stay >= 0:
                return self._made_at(a, other, other.needed, cheap_again)
        return None

    def _made_at(self, a: Account, w: Waiting, q: int, cheap_again: bool) -> Row | None:
        """The row with `w` made again just before place `q`."""
        row, maker = a.row, self.accountant.maker
        level = a.level.copy()
        if w.stay >= 0:
            level[w.since : q] -= self.size[w.value]
        keep = row.keep
        if keep[w.value]:
            keep = keep.copy()
            keep[w.value] = False
        ops = {maker[w.value]}
        todo = [maker[w.value]]
        seen: set[int] = {w.value}
        while todo:
            o = todo.pop()
            if self.accountant.fronts.stuck[o]:
                return None
            for r in self.accountant.reads[o]:
                if r in seen:
                    continue
                seen.add(r)
                if self._there(a, keep, r, q, level, cheap_again):
                    continue
                if self._kept_instead(a, r, q, level):
                    keep = keep.copy() if keep is row.keep else keep
                    keep[r] = True
                    continue
                if maker[r] not in ops:
                    if len(ops) == self.most_runs or maker[r] < 0:
                        return None
                    ops.add(maker[r])
                    todo.append(maker[r])
        k = int(np.searchsorted(a.run_place, q))
        is_run = k < len(a.run_place) and int(a.run_place[k]) == q
        m = int(row.moments[k]) if is_run else int(np.searchsorted(a.moment_place, q))
        new = np.array(sorted(ops), dtype=np.int64)
        return Row(keep, np.insert(row.ops, k, new), np.insert(row.moments, k, np.full(len(new), m)))

    def _there(self, a: Account, keep: Flags, r: int, q: int, level: Ints, cheap_again: bool) -> bool:
        """Whether `r` is in memory just before `q`, or can be held until then."""
        if keep[r]:
            end = a.kept_until.get(r, q)
            if end < q:
                level[end:q] += self.size[r]
            return True
        end = -1
        for s in a.stays_of.get(r, ()):
            if a.starts[s] < q:
                end = int(a.ends[s])
        if end < 0:
            return False
        if end >= q:
            return True
        size = int(self.size[r])
        if cheap_again and size and self.accountant.is_cheap[self.accountant.maker[r]]:
            return False
        if int(level[end:q].max()) + size > self.room:
            return False
        level[end:q] += size
        return True

    def _kept_instead(self, a: Account, r: int, q: int, level: Ints) -> bool:
        """Whether `r` can be kept from forward on."""
        if not self.can_keep[r] or r in a.stays_of:
            return False
        m = int(self.accountant.kept_from[r])
        start = int(a.moment_place[m]) if m < len(a.moment_place) else len(level)
        size = int(self.size[r])
        if start < q and int(level[start:q].max()) + size > self.room:
            return False
        level[start:q] += size
        return True

    def hold(self, a: Account, run: int) -> Row | None:
        """The row without that run, if what it makes can be held from before within the room."""
        row, place = a.row, int(a.run_place[run])
        keep = row.keep
        level = None
        for w in self.accountant.writes[int(row.ops[run])]:
            if keep[w]:
                continue
            before, mine = -1, -1
            for s in a.stays_of.get(w, ()):
                if a.starts[s] == place:
                    mine = s
                    break
                before = s
            if mine < 0 or a.first_entry[mine + 1] - a.first_entry[mine] < 2:
                continue  # nobody needs it
            size = int(self.size[w])
            if before >= 0:
                start, end = int(a.ends[before]), place
            elif not self.can_keep[w]:
                return None
            else:
                m = int(self.accountant.kept_from[w])
                start = int(a.moment_place[m]) if m < len(a.moment_place) else len(a.level)
                release = int(self.accountant.release[w])  # saves that are never asked for hold it, too
                released = int(a.moment_place[release]) if release < len(a.moment_place) else len(a.level)
                end = max(int(a.ends[a.stays_of[w][-1]]), released)
                keep = keep.copy() if keep is row.keep else keep
                keep[w] = True
            if start < end:
                level = a.level.copy() if level is None else level
                if before < 0:
                    for s in a.stays_of[w]:
                        level[a.starts[s] : a.ends[s]] -= size
                if int(level[start:end].max()) + size > self.room:
                    return None
                level[start:end] += size
        return Row(keep, np.delete(row.ops, run), np.delete(row.moments, run))
