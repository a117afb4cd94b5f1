//! A work-group: its wavefronts run one after another, each to its next barrier.

use super::cross;
use super::lds::Lds;
use super::simd::Work;
use super::sizes::Sizes;
use super::tally::{Lists, Tally};
use super::track::Track;
use super::vector::Unit;
use super::wave::{Progress, Wave};
use crate::code::Descriptor;
use crate::counters::Counters;
use crate::fault::{Access, Fault, FaultKind, Range, Space};
use crate::footprint::Footprint;
use crate::instructions::{Block, Text};
use crate::isa::inst::{Body, Inst};
use crate::isa::op::lanes::LANES;
use crate::isa::short::Short;
use crate::isa::text;
use crate::isa::{Effects, Generation};
use crate::lines::Lines;
use crate::memory::{Memory, Region, View};
use crate::options::Checks;
use crate::order::{Ledger, Own};
use crate::random::Noise;
use std::sync::{Mutex, PoisonError};

/// Receiver of the messages by which kernels raise interrupts, each with 24 bits of data.
pub(crate) type Interrupt<'a> = dyn Fn(u32) + Sync + 'a;

/// Parameters of a launch, shared by its work-groups.
pub(crate) struct Context<'a> {
    pub(crate) kernel: &'a str,
    pub(crate) descriptor: Descriptor,
    pub(crate) text: &'a Text,
    /// Address to which those of the text are relative: that at which the code object is loaded, or 0.
    pub(crate) code_base: u64,
    pub(crate) memory: &'a Memory,
    pub(crate) view: View,
    pub(crate) sizes: Sizes,
    pub(crate) lds_bytes: u32,
    /// Scratch bytes per lane.
    pub(crate) scratch_bytes: u32,
    pub(crate) user_sgprs: &'a [u32],
    pub(crate) checks: Checks,
    pub(crate) max_instructions: u64,
    /// Receives the messages by which kernels raise an interrupt; without it, they are not implemented.
    pub(crate) interrupt: Option<&'a Interrupt<'a>>,
    /// Collects the bytes read and written, if tracing.
    pub(crate) footprint: Option<&'a Mutex<Footprint>>,
    pub(crate) noise: &'a Noise,
    /// Source lines of the text, if they are known.
    pub(crate) lines: Option<&'a Lines>,
}

/// Wavefronts, LDS and operands of one host thread, reused for one work-group after another.
pub(crate) struct Machine {
    waves: Vec<Wave>,
    lds: Lds,
    unit: Unit,
    own: Own,
    lists: Lists,
}

/// Machines between two launches. They are large, and many launches are short.
#[derive(Default)]
pub(crate) struct Machines(Mutex<Vec<Machine>>);

impl Machines {
    /// Returns a machine, which comes back here when it is dropped.
    pub(crate) fn borrow(&self) -> Borrowed<'_> {
        let machine = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Borrowed { machine: Some(machine.unwrap_or_else(Machine::new)), to: self }
    }
}

impl std::fmt::Debug for Machines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Machines")
    }
}

/// A machine in use.
pub(crate) struct Borrowed<'a> {
    machine: Option<Machine>,
    to: &'a Machines,
}

impl Borrowed<'_> {
    /// Runs the `number`th work-group to its end.
    pub(crate) fn run(
        &mut self,
        context: &Context<'_>,
        ledger: Option<&Ledger>,
        number: usize,
        id: [u32; 3],
    ) -> Result<Counters, Fault> {
        self.machine.get_or_insert_with(Machine::new).run(context, ledger, number, id)
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        self.to.0.lock().unwrap_or_else(PoisonError::into_inner).extend(self.machine.take());
    }
}

/// Instructions whose last regions are known.
const INSTRUCTIONS: usize = 32;

/// A running work-group.
pub(crate) struct Group<'a> {
    pub(super) context: &'a Context<'a>,
    id: [u32; 3],
    /// Work-items along x, y and z.
    size: [u32; 3],
    pub(super) lds: &'a mut Lds,
    /// Counts of what was executed, without those of blocks.
    pub(super) counters: Counters,
    tally: Tally<'a>,
    pub(super) checks: Checks,
    pub(super) track: Track<'a>,
    /// Index of the region of the last access, by the word of the instruction: most access one region again and again.
    last: [usize; INSTRUCTIONS],
    /// Index of the running instruction in it.
    running: usize,
}

/// A wavefront runs to its next barrier or its end: compiled for the host's widest vectors, with all functions that it
/// calls inline.
struct Advance<'a, 'b> {
    group: &'a mut Group<'b>,
    wave: &'a mut Wave,
    unit: &'a mut Unit,
}

impl Work for Advance<'_, '_> {
    type Output = Result<(), FaultKind>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        self.group.lds.begin(self.wave.id);
        let done = self.group.advance(self.wave, self.unit);
        self.group.lds.end();
        done
    }
}

impl Machine {
    pub(crate) fn new() -> Machine {
        Machine {
            waves: Vec::new(),
            lds: Lds::new(),
            unit: Unit::new(),
            own: Own::new(),
            lists: Lists::default(),
        }
    }

    /// Runs the `number`th work-group to its end.
    pub(crate) fn run(
        &mut self,
        context: &Context<'_>,
        ledger: Option<&Ledger>,
        number: usize,
        id: [u32; 3],
    ) -> Result<Counters, Fault> {
        let size = context.sizes.of(id);
        let threads: u32 = size.iter().product();
        let count = threads.div_ceil(context.text.isa().lanes.into()) as usize;
        self.unit.approximate = context.noise.random.approximations.then_some(context.noise.seed);
        let words = context.noise.words(number as u64, context.lds_bytes.div_ceil(4) as usize);
        self.lds.reset(context.lds_bytes, context.checks, words);
        while self.waves.len() < count {
            self.waves.push(Wave::new());
        }
        let mut group = Group {
            context,
            id,
            size,
            lds: &mut self.lds,
            counters: Counters {
                waves: count as u64,
                lanes: count as u64 * u64::from(context.text.isa().lanes),
                ..Counters::default()
            },
            tally: Tally::new(&mut self.lists),
            checks: context.checks,
            track: Track::new(
                [context.checks.waits && context.checks.order, context.barrier_orders_stores()],
                &mut self.own,
                ledger,
                number as u32,
                count,
            ),
            last: [0; INSTRUCTIONS],
            running: 0,
        };
        let waves = &mut self.waves[..count];
        for (n, wave) in waves.iter_mut().enumerate() {
            group.begin(wave, n as u32, threads);
        }
        let mut epoch = 0;
        loop {
            epoch += 1;
            for n in context.noise.waves(number as u64, epoch, count) {
                let Some(wave) = waves.get_mut(usize::from(n)).filter(|w| w.state != Progress::Ended) else {
                    continue;
                };
                wave.state = Progress::Running;
                group.track.begin_turn(wave.id);
                let host = self.unit.host;
                let done = host.run(Advance { group: &mut group, wave, unit: &mut self.unit });
                done.map_err(|kind| group.fault(wave, kind))?;
                if let Some(conflict) = group.track.end_turn(context.checks.order) {
                    return Err(context.conflict(&conflict, |_| id));
                }
            }
            if waves.iter().all(|w| w.state == Progress::Ended) {
                break;
            }
            group.barrier(waves)?;
        }
        group.track.end();
        group.tally.count(&mut group.counters);
        group.counters.instructions = waves.iter().map(|w| w.executed).sum();
        group.counters.lds_read = std::mem::take(&mut group.lds.read);
        group.counters.lds_written = std::mem::take(&mut group.lds.stored);
        Ok(group.counters)
    }
}

impl<'a> Group<'a> {
    pub(super) fn id(&self) -> [u32; 3] {
        self.id
    }

    pub(super) fn noise(&self) -> &'a Noise {
        self.context.noise
    }

    pub(super) fn scratch_bytes(&self) -> u32 {
        self.context.scratch_bytes
    }

    /// Initialises a wavefront before its first instruction.
    fn begin(&self, wave: &mut Wave, n: u32, threads: u32) {
        let (context, descriptor) = (self.context, &self.context.descriptor);
        wave.id = n;
        wave.all = context.text.isa().all_lanes();
        self.start_scalars(wave);
        (wave.scalars.scc, wave.executed, wave.state) = (false, 0, Progress::Running);
        wave.waits.clear(context.text.isa().target);
        wave.mode = descriptor.mode;
        wave.pc = ((descriptor.entry.wrapping_sub(context.text.base)) / 4) as usize;
        // Those of the last kernel too: its values must not reach a kernel that reads more registers than it has.
        self.start_vectors(
            wave,
            descriptor.vgprs.max(wave.vgprs),
            descriptor.accumulators.max(wave.accumulators),
        );
        (wave.vgprs, wave.accumulators) = (descriptor.vgprs, descriptor.accumulators);
        let lanes = u32::from(context.text.isa().lanes);
        let first = n * lanes;
        let active = (threads - first).min(lanes);
        wave.set_exec(u64::MAX >> (64 - active));
        self.initial_ids(wave, first);
        self.initial_sgprs(wave, threads.div_ceil(lanes));
    }

    /// Sets the initial vector registers: the ids of the work-items, from `first` on.
    fn initial_ids(&self, wave: &mut Wave, first: u32) {
        let [x, y, _] = self.size;
        let packed = self.context.text.isa().target.traits().packed_ids;
        let kinds = self.context.descriptor.rsrc2 >> 11 & 3;
        let mut id = [first % x, first / x % y, first / x / y];
        if id[0] + LANES as u32 <= x {
            // All in one row, as most are: loops that the host's compiler makes vectors of.
            let first = id[0] | if packed { id[1] << 10 | id[2] << 20 } else { 0 };
            wave.vgpr[0] = std::array::from_fn(|lane| first + lane as u32);
            let others = if packed { 0 } else { kinds as usize };
            let rows = wave.vgpr[1..].iter_mut().zip(&id[1..]).take(others);
            rows.for_each(|(register, &id)| *register = [id; LANES]);
            return;
        }
        for lane in 0..LANES {
            if packed {
                wave.vgpr[0][lane] = id[0] | id[1] << 10 | id[2] << 20;
            } else {
                for (register, id) in wave.vgpr.iter_mut().zip(id).take(1 + kinds as usize) {
                    register[lane] = id;
                }
            }
            // The next one: divisions take their time.
            id[0] += 1;
            if id[0] == x {
                (id[0], id[1]) = (0, id[1] + 1);
            }
            if id[1] == y {
                (id[1], id[2]) = (0, id[2] + 1);
            }
        }
    }

    /// Sets the initial scalar registers: user SGPRs, then those that the descriptor enables.
    fn initial_sgprs(&self, wave: &mut Wave, waves: u32) {
        let descriptor = &self.context.descriptor;
        let user = self.context.user_sgprs;
        wave.scalars.registers[..user.len()].copy_from_slice(user);
        let mut n = descriptor.user_sgprs as usize;
        let mut set = |bit: u32, value: u32| {
            if descriptor.rsrc2 >> bit & 1 != 0 {
                wave.scalars.registers[n] = value;
                n += 1;
            }
        };
        set(7, self.id[0]);
        set(8, self.id[1]);
        set(9, self.id[2]);
        let target = self.context.text.isa().target;
        // TG_SIZE: number of wavefronts in the work-group, the index of this one, and on GFX11 a bit for the first.
        set(
            10,
            match target.generation() {
                Generation::Gfx9 => waves | wave.id << 6,
                Generation::Gfx11 => waves | wave.id << 20 | u32::from(wave.id == 0) << 31,
            },
        );
        if !target.traits().architected_scratch {
            // Offset of the wavefront's scratch: 0, because each wavefront has its own buffer.
            set(0, 0);
        }
    }

    /// Runs a wavefront to its next barrier or its end.
    #[inline(always)]
    fn advance(&mut self, wave: &mut Wave, unit: &mut Unit) -> Result<(), FaultKind> {
        let mut cursor = self.context.text.cursor();
        while wave.state == Progress::Running {
            let Some(block) = cursor.at(wave.pc) else {
                wave.at = wave.pc;
                return Err(FaultKind::IllegalInstruction(self.context.text.word(wave.pc).unwrap_or(0)));
            };
            wave.executed += block.short.len() as u64;
            wave.at = block.last;
            if wave.executed > self.context.max_instructions {
                return Err(FaultKind::Budget(self.context.max_instructions));
            }
            self.tally.add(block);
            // Only the last instruction reads it.
            wave.pc = block.end;
            if let Err((n, fault)) = self.block(wave, unit, block) {
                wave.at = block.instructions[n].word;
                return Err(fault);
            }
        }
        Ok(())
    }

    /// Executes a block. An error has the index of its instruction.
    #[inline(always)]
    fn block(&mut self, wave: &mut Wave, unit: &mut Unit, block: &Block) -> Result<(), (usize, FaultKind)> {
        // Instructions in short do not approximate.
        let usual = block.mode.has(wave.mode) && unit.approximate.is_none();
        let mut n = 0;
        for section in &block.sections {
            let early = wave.waits.are_pending(&section.used);
            for short in &block.short[n..section.end] {
                match if usual && !early { short } else { short.allowed(early) } {
                    Short::Plain { run, names } => unit.short(wave, run, *names),
                    Short::Same { run, names, word } => unit.short_same(wave, run, *names, *word),
                    Short::Mixed(mixed) => unit.short_mixed(wave, mixed),
                    Short::Changed(changed) => unit.short_changed(wave, changed),
                    Short::Scalar { run, step } => run(&mut wave.scalars, step),
                    &Short::Wait(wait) => {
                        if self.checks.waits {
                            wave.waits.wait(wait);
                        }
                    }
                    Short::Nothing => {}
                    &Short::Branch { control, words } => {
                        if wave.is_taken(control) {
                            wave.pc = wave.pc.wrapping_add_signed(words.into());
                        }
                    }
                    Short::Other => {
                        wave.at = block.instructions[n].word;
                        let Some(full) = block.full(n, self.context.text) else {
                            return Err((n, FaultKind::IllegalInstruction(0)));
                        };
                        let done = self.step(wave, unit, &full.inst, &full.effects, early);
                        done.map_err(|fault| (n, fault))?;
                    }
                }
                n += 1;
            }
        }
        Ok(())
    }

    /// Executes an instruction. `early`: it may use registers that memory is going to fill.
    #[inline(always)]
    fn step(
        &mut self,
        wave: &mut Wave,
        unit: &mut Unit,
        inst: &Inst,
        effects: &Effects,
        early: bool,
    ) -> Result<(), FaultKind> {
        if early && wave.waits.are_pending(&effects.used) {
            wave.check_waits(inst, effects)?;
        }
        match &inst.body {
            Body::Vector(_, row) => unit.execute(wave, inst, row),
            &Body::Scalar(table, row) => self.scalar(wave, inst, table, row),
            Body::ScalarMemory(row) => {
                self.running = wave.at % INSTRUCTIONS;
                self.begin_waiting(wave, inst, effects);
                self.scalar_memory(wave, inst, row)
            }
            &Body::Memory(segment, row) => {
                self.running = wave.at % INSTRUCTIONS;
                self.begin_waiting(wave, inst, effects);
                self.vector_memory(wave, inst, segment, row)
            }
            Body::Lds(row) => {
                self.begin_waiting(wave, inst, effects);
                self.ds(unit.host, wave, inst, row)
            }
            Body::Matrix(row) => {
                unit.matrix(wave, inst, row);
                Ok(())
            }
            Body::Wmma(row) => cross::multiply(wave, inst, row),
            Body::Pair(pair) => unit.execute_pair(wave, pair),
        }
    }

    /// Notes that an access to memory is in flight, if waits are checked.
    #[inline(always)]
    fn begin_waiting(&self, wave: &mut Wave, inst: &Inst, effects: &Effects) {
        if self.checks.waits {
            wave.begin_waiting(inst, effects);
        }
    }

    /// Handles a barrier: all wavefronts have stopped, at least one of them at a barrier.
    fn barrier(&mut self, waves: &mut [Wave]) -> Result<(), Fault> {
        self.lds.barrier();
        self.track.barrier(waves);
        if !self.checks.barriers {
            return Ok(());
        }
        let first = waves.iter().find(|w| matches!(w.state, Progress::Waiting(_)));
        let Some(first) = first else { return Ok(()) };
        let other = waves.iter().find(|w| w.state != first.state);
        let Some(other) = other else { return Ok(()) };
        let details = match other.state {
            Progress::Waiting(at) => format!(
                "wavefront {} waits at {:#x}, wavefront {} at {:#x}",
                first.id,
                self.address(first.at),
                other.id,
                self.address(at)
            ),
            _ => format!("wavefront {} waits, wavefront {} has ended", first.id, other.id),
        };
        Err(self.fault(first, FaultKind::BarrierDivergence(details)))
    }

    /// Returns the region that contains a range of addresses, and the offset in it.
    #[inline(always)]
    pub(super) fn global(&mut self, address: u64, bytes: u64) -> Option<(&'a Region, u64)> {
        let regions: &'a [Region] = &self.context.view.regions;
        let last = regions
            .get(self.last[self.running])
            .and_then(|region| Some((region, region.offset(address, bytes)?)));
        if last.is_some() {
            return last;
        }
        let after = regions.partition_point(|r| r.base <= address);
        let found = after.checked_sub(1)?;
        self.last[self.running] = found;
        let region = &regions[found];
        Some((region, region.offset(address, bytes)?))
    }

    pub(super) fn missing(&self, range: Range) -> FaultKind {
        self.context.memory.missing(range)
    }

    /// Returns the address of a word of the text: in its code object, or in memory.
    fn address(&self, word: usize) -> u64 {
        self.context.address(word)
    }

    /// Returns the device address of a word of the text.
    pub(super) fn address_of(&self, word: usize) -> u64 {
        self.context.code_base.wrapping_add(self.address(word))
    }

    /// Returns the word of the text at a device address.
    pub(super) fn word_at(&self, address: u64) -> Result<usize, FaultKind> {
        let base = self.context.code_base + self.context.text.base;
        let word = address.wrapping_sub(base) / 4;
        let inside = address >= base && word < self.context.text.len() as u64 && address % 4 == 0;
        let range = Range { space: Space::Global, access: Access::Read, at: address, bytes: 4 };
        if inside { Ok(word as usize) } else { Err(FaultKind::OutOfBounds(range)) }
    }

    fn fault(&self, wave: &Wave, kind: FaultKind) -> Fault {
        let instruction = match self.context.text.at(wave.at) {
            Some(inst) => text::print(&inst),
            None => format!(".long {:#x}", self.context.text.word(wave.at).unwrap_or(0)),
        };
        Fault {
            kind,
            kernel: self.context.kernel.to_string(),
            address: self.address(wave.at),
            instruction: instruction.into(),
            group: self.id,
            wave: wave.id,
            origin: self.context.origin(wave.at),
        }
    }
}

#[cfg(test)]
mod tests;
