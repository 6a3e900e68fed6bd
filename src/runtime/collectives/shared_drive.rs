//! How a collective is carried out through the memory that its ranks share.
//!
//! A short contribution goes with the call's line: each rank writes its own, waits for those that it needs, and takes or folds
//! what is there. A longer one goes in pieces, of which several are under way: put a piece, take or fold the one before. If all
//! ranks want the whole of what is folded, each rank folds a share of each piece, and takes the others' shares from where they
//! lie: that is a third stage.
//!
//! A rank writes over a line or a piece once all have done with it. It checks that a peer is in the same call before it believes
//! anything else of that peer. Where the user wants checksums (`shared_checks`), a rank takes from a checked copy, or folds it.

use super::call_progress::{CallProgress, Done, STAGES};
use super::drive::grow;
use super::engine::{Collectives, Driver};
use super::shared::{Counter, HostMemory, DEPTH, FLAT_BYTES, SETS};
use super::shared_checks::{lay, Room};
use super::shared_wait::SharedWait;
use super::stop::{Running, Stop};
use crate::runtime::memory::buffer::{Arithmetic, CallBuffers, Memory};
use crate::runtime::memory::buffer_shared::{scratch_bytes, stretch_elements, Folding, Sink};
use crate::schedules::kernels::UserFunction;
use crate::schedules::{choose, Algorithm, Fold, Shape, Sharing, Taking};
use crate::types::{Call, CallKind, DType};

/// One call under way in shared memory.
struct Sharer<'a> {
    waiting: SharedWait<'a>,
    shared: &'a mut HostMemory,
    sharing: &'a Sharing<'a>,
    memory: &'a Memory<'a>,
    arithmetic: Option<Arithmetic>,
    /// The number of the call among those that are carried out here.
    call: u64,
    /// How many pieces there were before this call.
    base: u64,
    /// One bit for each rank that is known to be in this call.
    met: u64,
    scratch: Vec<u8>,
    done: Done,
}

/// The elements of a call that are dealt with at a time, and where each rank's elements lie.
#[derive(Clone, Copy)]
struct Piece {
    first: usize,
    end: usize,
    at: At,
    /// How far apart the parts of a contribution lie.
    stride: usize,
}

impl Piece {
    /// How many bytes behind a contribution's begin the elements of a part lie, from `first` on, if one has `element` bytes.
    #[inline]
    fn offset(&self, part: u32, first: usize, element: usize) -> usize {
        part as usize * self.stride + (first - self.first) * element
    }
}

#[derive(Clone, Copy)]
enum At {
    /// With the call's line.
    Line,
    /// In the pieces: the one with this number.
    Number(u64),
}

/// Whether this call is carried out in shared memory: the same on every rank.
pub(super) fn sharing<'a>(host: &HostMemory, shape: &Shape<'a>, by: &'static Algorithm) -> Option<Sharing<'a>> {
    let sharing = Sharing::of(*shape, by)?;
    let has_room = host.floor.has_room_for(sharing.parts() as usize, sharing.least(), sharing.element());
    has_room.then_some(sharing)
}

/// Carries a call out, after the ranks have told each other how long their parts are, where that is needed.
pub(super) fn share_all(
    (group, driver): (&Collectives, &mut Driver),
    shared: &mut HostMemory,
    running: &Running<'_>,
    sharing: &Sharing<'_>,
    memory: &Memory<'_>,
    function: Option<UserFunction>,
) -> Result<(), Stop> {
    if !sharing.needs_telling() {
        return share((group, driver), shared, running, sharing, memory, function);
    }
    driver.by_steps(2, |driver, step| match step {
        0 => tell_counts((group, driver), shared, running, sharing),
        _ => {
            let sharing = shared.told_of(sharing)?;
            share((group, driver), shared, running, &sharing, memory, function)
        }
    })
}

/// Tells the others how long this rank's parts are, and hears the same of them, by an all-gather that goes with the call's line.
fn tell_counts(
    (group, driver): (&Collectives, &mut Driver),
    shared: &mut HostMemory,
    running: &Running<'_>,
    sharing: &Sharing<'_>,
) -> Result<(), Stop> {
    let (ranks, count, dtype) = (shared.floor.ranks, sharing.parts(), DType::Uint64);
    let row_bytes = count as usize * dtype.size();
    let mut told = std::mem::take(&mut shared.told);
    grow(&mut told, row_bytes * (1 + ranks))?;
    let (all, own) = told.split_at_mut(row_bytes * ranks);
    own.chunks_exact_mut(dtype.size())
        .zip(sharing.tells())
        .for_each(|(to, count)| to.copy_from_slice(&count.to_le_bytes()));
    let call =
        Call { kind: CallKind::Allgather, dtype: Some(dtype), op: None, root: None, count: count.into(), layout: 0 };
    let shape = Shape { rank: shared.rank, size: ranks as u32, call, in_place: false, layout: None };
    let memory = CallBuffers::of(&own[..row_bytes], all).memory();
    let announcing = Sharing::of(shape, choose(&shape, &group.thresholds)).ok_or(Stop::Bug)?;
    let outcome = share((group, driver), shared, running, &announcing, &memory, None);
    shared.told = told;
    outcome
}

/// Carries a call out through the shared memory.
pub(super) fn share(
    (group, driver): (&Collectives, &mut Driver),
    shared: &mut HostMemory,
    running: &Running<'_>,
    sharing: &Sharing<'_>,
    memory: &Memory<'_>,
    function: Option<UserFunction>,
) -> Result<(), Stop> {
    let arithmetic = sharing.dtype().zip(sharing.op()).map(|(dtype, op)| Arithmetic { dtype, op, function });
    let done = match std::mem::take(&mut driver.progress) {
        CallProgress::Memory(done) => done,
        _ => {
            shared.calls += 1;
            Done::default()
        }
    };
    let (call, base) = (shared.calls, shared.pieces);
    let waiting = SharedWait { group, running };
    let scratch = std::mem::take(&mut driver.piece);
    let mut sharer = Sharer { waiting, shared, sharing, memory, arithmetic, call, base, met: 0, scratch, done };
    let outcome = sharer.carry_out(driver);
    if outcome.as_ref().is_err_and(Stop::goes_on) {
        driver.progress = CallProgress::Memory(sharer.done);
    }
    driver.piece = sharer.scratch;
    outcome
}

impl Sharer<'_> {
    fn carry_out(&mut self, driver: &mut Driver) -> Result<(), Stop> {
        let ranks = self.shared.floor.ranks;
        if self.arithmetic.is_some() {
            grow(&mut self.scratch, scratch_bytes(ranks, self.sharing.element()))?;
        }
        let (parts, longest) = (self.sharing.parts() as usize, self.sharing.longest());
        let line = Piece { first: 0, end: longest, at: At::Line, stride: longest * self.sharing.element() };
        let is_flat = longest.saturating_mul(parts * self.sharing.element()) <= FLAT_BYTES;
        if let Some(checks) = &mut self.shared.checks {
            checks.stride = if is_flat { FLAT_BYTES } else { self.shared.floor.piece_bytes };
            grow(&mut checks.stage, checks.stride)?;
            grow(&mut checks.copies, ranks * checks.stride)?;
        }
        if !self.done.has_come {
            self.come(driver, is_flat.then_some(line))?;
        }
        match is_flat {
            true => self.take_flat(driver, line)?,
            false => self.by_pieces(driver, longest, parts)?,
        }
        self.shared.publish(Counter::Done, self.call);
        Ok(())
    }

    /// Publishes that this rank has come to the call, with the contribution that goes with its line.
    fn come(&mut self, driver: &mut Driver, line: Option<Piece>) -> Result<(), Stop> {
        self.wait_until_done(driver)?;
        if let Some((from, to)) = self.sharing.own() {
            self.memory.copy(from, to);
        }
        line.into_iter().for_each(|line| self.put(line));
        self.shared.come(self.call, self.waiting.running, &mut driver.head);
        self.done.has_come = true;
        Ok(())
    }

    /// Waits until all have done the call whose line this one writes over.
    fn wait_until_done(&mut self, driver: &mut Driver) -> Result<(), Stop> {
        let needed = self.call.saturating_sub(SETS);
        if self.shared.done_by_all >= needed {
            return Ok(());
        }
        let mut least = u64::MAX;
        for rank in self.others() {
            self.wait(driver, rank, |shared| shared.count(rank, Counter::Done) >= needed)?;
            least = least.min(self.shared.count(rank, Counter::Done));
        }
        self.shared.done_by_all = least;
        Ok(())
    }

    /// The other ranks, the next above first, so that not all look at the same one.
    fn others(&self) -> impl Iterator<Item = u32> {
        let (own, ranks) = (self.shared.rank, self.shared.floor.ranks as u32);
        (1..ranks).map(move |distance| (own + distance) % ranks)
    }

    fn wait(&mut self, driver: &mut Driver, rank: u32, has_come: impl Fn(&HostMemory) -> bool) -> Result<(), Stop> {
        self.waiting.wait_for(driver, self.shared, rank, has_come)
    }

    /// Waits until a rank has come to this call, and looks whether it calls the same.
    fn meet(&mut self, driver: &mut Driver, rank: u32) -> Result<(), Stop> {
        if self.met >> rank & 1 == 1 {
            return Ok(());
        }
        let call = self.call;
        self.wait(driver, rank, |shared| shared.has_come(rank, call))?;
        self.shared.compare(rank, call, self.waiting.running)?;
        self.met |= 1 << rank;
        Ok(())
    }

    /// Waits until a rank's counter is at least so high.
    fn reach(&mut self, driver: &mut Driver, rank: u32, counter: Counter, least: u64) -> Result<(), Stop> {
        if rank == self.shared.rank {
            return Ok(());
        }
        if least > self.base {
            self.meet(driver, rank)?;
        }
        self.wait(driver, rank, |shared| shared.count(rank, counter) >= least)
    }

    fn reach_all(&mut self, driver: &mut Driver, counter: Counter, least: u64) -> Result<(), Stop> {
        for rank in self.others() {
            self.reach(driver, rank, counter, least)?;
        }
        Ok(())
    }

    /// The room in which a rank puts its contribution to a piece.
    #[inline]
    fn room(&self, rank: u32, piece: Piece) -> Room {
        let bytes = self.sharing.parts() as usize * piece.stride;
        match piece.at {
            At::Line => self.shared.floor.content(rank, self.call, bytes),
            At::Number(number) => self.shared.floor.piece(rank, number, bytes),
        }
    }

    /// A rank's share of a piece of results: its elements, and where they lie.
    fn result(&self, rank: u32, piece: Piece, number: u64) -> ([usize; 2], Room) {
        let [first, end] = self.sharing.slice(rank, [piece.first, piece.end]);
        let element = self.sharing.narrows().map_or(self.sharing.element(), |how| how.to.size());
        ([first, end], self.shared.floor.result(rank, number, (end - first) * element))
    }

    /// How many bytes behind a contribution's begin the elements of a part lie, from `first` on.
    #[inline]
    fn offset(&self, part: u32, piece: Piece, first: usize) -> usize {
        piece.offset(part, first, self.sharing.element())
    }

    /// Checks these elements of a piece, in what each rank has put, if there are checksums.
    fn check_all(&mut self, piece: Piece, [first, end]: [usize; 2]) -> Result<(), Stop> {
        if self.shared.checks.is_none() {
            return Ok(());
        }
        let element = self.sharing.element();
        for rank in 0..self.shared.floor.ranks as u32 {
            let begins = self.sharing.folded_parts(rank).map(|part| piece.offset(part, first, element));
            let ranges = begins.map(|begin| begin..begin + (end - first) * element);
            self.shared.check(rank, self.room(rank, piece), ranges)?;
        }
        Ok(())
    }

    /// Fills a room of this rank: where others find it, or in a copy that goes there with its checksums.
    fn fill(&mut self, room: Room, fill: impl FnOnce(&Self, Sink<'_>, usize)) {
        let Some(checks) = &mut self.shared.checks else {
            return fill(self, Sink::Shared(&self.shared.segment), room.at);
        };
        let mut stage = std::mem::take(&mut checks.stage);
        fill(self, Sink::Copy(&mut stage), 0);
        lay(&self.shared.segment, room, &stage[..room.bytes]);
        self.shared.checks.iter_mut().for_each(|checks| std::mem::swap(&mut checks.stage, &mut stage));
    }

    /// The elements of a piece that this part has. The part may be shorter than others.
    fn within(&self, from: u32, part: u32, piece: Piece) -> Option<[usize; 2]> {
        let end = piece.end.min(self.sharing.elements(from, part));
        (piece.first < end).then_some([piece.first, end])
    }

    /// Puts this rank's piece.
    fn put(&mut self, piece: Piece) {
        let own = self.shared.rank;
        if self.sharing.taking() == Taking::Nothing || !self.sharing.gives(own) {
            return;
        }
        self.fill(self.room(own, piece), |this, mut sink, begin| {
            for part in 0..this.sharing.parts() {
                let Some(range) = this.within(own, part, piece) else { continue };
                let span = this.sharing.given(part, range);
                let at = begin + this.offset(part, piece, piece.first);
                this.memory.put(span, &mut sink, at, this.sharing.widens());
            }
        });
    }

    /// Waits for the contributions that came with the lines, and takes what is this rank's.
    fn take_flat(&mut self, driver: &mut Driver, piece: Piece) -> Result<(), Stop> {
        match self.sharing.taking() {
            Taking::Nothing => self.meet_all(driver),
            Taking::Parts => self.take_parts(driver, piece),
            Taking::All | Taking::AtRoot | Taking::OwnPart => {
                if !self.sharing.takes() {
                    return Ok(());
                }
                self.meet_all(driver)?;
                self.fold(piece, [piece.first, piece.end], None)
            }
        }
    }

    fn meet_all(&mut self, driver: &mut Driver) -> Result<(), Stop> {
        self.others().try_for_each(|rank| self.meet(driver, rank))
    }

    /// Takes what others give this rank, each as it comes.
    fn take_parts(&mut self, driver: &mut Driver, piece: Piece) -> Result<(), Stop> {
        if !self.sharing.takes() {
            return Ok(());
        }
        let part = self.sharing.taken_part();
        for rank in self.others().skip(self.done.taken) {
            if self.sharing.gives(rank) {
                match piece.at {
                    At::Line => self.meet(driver, rank)?,
                    At::Number(number) => self.reach(driver, rank, Counter::Put, number + 1)?,
                }
                if let Some(range) = self.within(rank, part, piece) {
                    let (span, room) = (self.sharing.place(rank, range), self.room(rank, piece));
                    let offset = self.offset(part, piece, piece.first);
                    self.shared.check(rank, room, std::iter::once(offset..offset + span.len))?;
                    self.memory.take(self.shared.source(), self.shared.begin(rank, room) + offset, span);
                }
            }
            self.done.taken += 1;
        }
        Ok(())
    }

    /// Folds these elements of a piece, which all ranks have put. The result goes to this rank's output, if the rank
    /// wants it, and to this room, if there is one.
    fn fold(&mut self, piece: Piece, range: [usize; 2], result: Option<Room>) -> Result<(), Stop> {
        let Some(arithmetic) = self.arithmetic else { return Ok(()) };
        let range = [range[0], range[1].min(self.sharing.result_elements())];
        if range[0] >= range[1] {
            return Ok(());
        }
        self.check_all(piece, range)?;
        let mut scratch = std::mem::take(&mut self.scratch);
        match result {
            Some(room) => self.fill(room, |this, sink, begin| {
                this.fold_into(arithmetic, piece, range, (sink, Some(begin)), &mut scratch);
            }),
            None => {
                let nowhere = (Sink::Copy(&mut []), None);
                self.fold_into(arithmetic, piece, range, nowhere, &mut scratch);
            }
        }
        self.scratch = scratch;
        Ok(())
    }

    fn fold_into(
        &self,
        arithmetic: Arithmetic,
        piece: Piece,
        [first, end]: [usize; 2],
        (to, begin): (Sink<'_>, Option<usize>),
        scratch: &mut [u8],
    ) {
        let sharing = self.sharing;
        let (element, part) = (sharing.element(), sharing.taken_part());
        let (divisor, narrows) = (sharing.divisor(), sharing.narrows());
        let narrow = narrows.map_or(element, |how| how.to.size());
        let place = |rank: u32, part: u32, first: usize| {
            self.shared.begin(rank, self.room(rank, piece)) + self.offset(part, piece, first)
        };
        let mut folding = Folding { from: self.shared.source(), to, arithmetic, divisor, narrows, scratch };
        let mut at = first;
        while at < end {
            let (block, block_end) = sharing.block_at(at);
            let upto = end.min(block_end).min(at + stretch_elements(element));
            let span = sharing.takes().then(|| sharing.place(self.shared.rank, [at, upto]));
            let also = begin.map(|begin| begin + (at - first) * narrow);
            if sharing.is_exact() {
                let place = |number: usize| {
                    let (rank, part) = sharing.row(number);
                    place(rank, part, at)
                };
                folding.sum_exact((sharing.rows(), &place), upto - at, self.memory, (span, also));
            } else {
                let places = (0..self.shared.floor.ranks as u32).map(|rank| place(rank, part, at));
                let order = |each: &mut dyn FnMut(Fold)| sharing.fold(block, &mut |fold| each(fold));
                folding.fold(places, upto - at, order, self.memory, (span, also));
            }
            at = upto;
        }
    }

    /// Carries out a call whose contributions are long.
    fn by_pieces(&mut self, driver: &mut Driver, longest: usize, parts: usize) -> Result<(), Stop> {
        let element = self.sharing.element();
        let each = self.shared.floor.piece_bytes / (parts * element);
        let (number, base) = (longest.div_ceil(each) as u64, self.base);
        let piece = |nth: u64| {
            let first = nth as usize * each;
            let (end, at) = (longest.min(first + each), At::Number(base + nth));
            Piece { first, end, at, stride: (end - first) * element }
        };
        let shares = matches!(self.sharing.taking(), Taking::All | Taking::AtRoot);
        let last_stage = if shares { 2 } else { 1 };
        for done in self.done.stages..(number + last_stage) * STAGES {
            self.done.stages = done;
            let (turn, stage) = (done / STAGES, done % STAGES);
            if stage == 0 {
                self.waiting.keep_to_time(driver, turn)?;
            }
            let Some(nth) = turn.checked_sub(stage).filter(|nth| *nth < number) else { continue };
            match (stage, shares) {
                (0, _) => self.put_piece(driver, piece(nth), base + nth, shares)?,
                (1, true) => self.fold_share(driver, piece(nth), base + nth)?,
                (1, false) => self.take_piece(driver, piece(nth), base + nth)?,
                (_, true) => self.take_shares(driver, piece(nth), base + nth)?,
                (_, false) => {}
            }
            self.done.taken = 0;
        }
        self.shared.pieces = base + number;
        // A later call must not wait for the stages that this call has left out.
        for counter in [Counter::Put, Counter::Folded, Counter::Taken] {
            self.shared.publish(counter, base + number);
        }
        Ok(())
    }

    fn put_piece(&mut self, driver: &mut Driver, piece: Piece, number: u64, shares: bool) -> Result<(), Stop> {
        if self.sharing.gives(self.shared.rank) {
            // All have read what lay there.
            let read = if shares { Counter::Folded } else { Counter::Taken };
            self.reach_all(driver, read, (number + 1).saturating_sub(DEPTH))?;
            self.put(piece);
        }
        self.shared.publish(Counter::Put, number + 1);
        Ok(())
    }

    /// The second and last stage, where each takes what is its own.
    fn take_piece(&mut self, driver: &mut Driver, piece: Piece, number: u64) -> Result<(), Stop> {
        if self.sharing.taking() == Taking::OwnPart {
            self.reach_all(driver, Counter::Put, number + 1)?;
            self.fold(piece, [piece.first, piece.end], None)?;
        } else {
            self.take_parts(driver, piece)?;
        }
        self.shared.publish(Counter::Folded, number + 1);
        self.shared.publish(Counter::Taken, number + 1);
        Ok(())
    }

    /// The second stage, where each folds its share for all.
    fn fold_share(&mut self, driver: &mut Driver, piece: Piece, number: u64) -> Result<(), Stop> {
        // All have taken what lay in this rank's piece of results.
        self.reach_all(driver, Counter::Taken, (number + 1).saturating_sub(DEPTH))?;
        self.reach_all(driver, Counter::Put, number + 1)?;
        let (range, room) = self.result(self.shared.rank, piece, number);
        self.fold(piece, range, Some(room))?;
        self.shared.publish(Counter::Folded, number + 1);
        Ok(())
    }

    /// The third stage: each takes the others' shares.
    fn take_shares(&mut self, driver: &mut Driver, piece: Piece, number: u64) -> Result<(), Stop> {
        if self.sharing.takes() {
            for rank in self.others().skip(self.done.taken) {
                self.reach(driver, rank, Counter::Folded, number + 1)?;
                let (range, room) = self.result(rank, piece, number);
                self.shared.check(rank, room, std::iter::once(0..room.bytes))?;
                self.memory.take(self.shared.source(), self.shared.begin(rank, room), self.sharing.place(rank, range));
                self.done.taken += 1;
            }
        }
        self.shared.publish(Counter::Taken, number + 1);
        Ok(())
    }
}
