//! Recorded commands of a command buffer.

use crate::memory::{Buffer, HighBlock, HighMemory};
use crate::order::{COMPUTE, Role, Stages, TRANSFER};
use crate::pipeline::Pipeline;
use crate::queries::QueryPool;
use crate::reply::{Reply, unknown};
use crate::visible::Masks;
use ash::vk;
use std::sync::Arc;
use virtual_gpu::{Access, Gpu};

/// Maximum bytes of push constants that RADV supports.
pub(crate) const PUSH_BYTES: usize = 256;

/// Maximum number of bound descriptor sets.
pub(crate) const SETS: usize = 32;

/// A finished recording, which can run many times.
pub(crate) struct List {
    pub(crate) commands: Vec<Command>,
    /// Push constants and grid sizes.
    _block: Option<HighBlock>,
}

impl List {
    /// Finishes a recording: sets the dispatches' registers and allocates memory for data that does not fit
    /// into registers.
    pub(crate) fn new(mut commands: Vec<Command>, high: &HighMemory, gpu: &Gpu) -> Reply<List> {
        let mut dispatches: Vec<_> = commands
            .iter_mut()
            .filter_map(|c| if let Command::Dispatch(d) = c { Some(d) } else { None })
            .collect();
        let many = dispatches.iter().filter(|d| d.needs_memory()).count();
        let block = match many {
            0 => None,
            _ => Some(high.allocate((many * Dispatch::ARGUMENT_BYTES) as u64)?),
        };
        let mut contents = Vec::with_capacity(many * Dispatch::ARGUMENT_BYTES);
        for dispatch in &mut dispatches {
            let at = block.as_ref().map_or(0, |b| b.address) + contents.len() as u64;
            dispatch.prepare(at)?;
            if dispatch.needs_memory() {
                contents.extend(dispatch.arguments());
            }
        }
        if let Some(block) = &block {
            gpu.write(block.address, &contents).map_err(|_| vk::Result::ERROR_UNKNOWN)?;
        }
        Ok(List { commands, _block: block })
    }
}

/// A range of memory and its buffer.
#[derive(Clone)]
pub(crate) struct Span {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) _buffer: Arc<Buffer>,
}

/// A recorded command.
pub(crate) enum Command {
    Dispatch(Box<Dispatch>),
    Copy { from: Span, to: Span },
    Fill { to: Span, word: u32 },
    Update { to: Span, data: Vec<u8> },
    Barrier(Stages, Stages, Masks),
    ResetQueries { pool: Arc<QueryPool>, first: u32, count: u32 },
    Timestamp { pool: Arc<QueryPool>, index: u32 },
    Marker { to: Span, word: u32 },
}

/// A dispatch.
pub(crate) struct Dispatch {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) grid: Grid,
    pub(crate) first: [u32; 3],
    /// Initial user SGPRs of the work-groups, without the grid's size.
    pub(crate) registers: Vec<u32>,
    pub(crate) sets: [u64; SETS],
    pub(crate) push: [u8; PUSH_BYTES],
}

/// Number of work-groups of a dispatch.
#[derive(Clone)]
pub(crate) enum Grid {
    Direct([u32; 3]),
    /// Three words in memory.
    Indirect(Span),
}

impl Command {
    /// Returns the command's role in the ordering.
    pub(crate) fn role(&self) -> Role {
        match self {
            Command::Dispatch(_) => Role::Work(COMPUTE),
            Command::Copy { .. } | Command::Fill { .. } | Command::Update { .. } => Role::Work(TRANSFER),
            Command::Barrier(from, to, _) => Role::Barrier(*from, *to),
            Command::ResetQueries { .. } | Command::Timestamp { .. } | Command::Marker { .. } => Role::Mark,
        }
    }

    /// Returns the masks of a barrier.
    pub(crate) fn masks(&self) -> Option<Masks> {
        if let Command::Barrier(.., masks) = self { Some(*masks) } else { None }
    }

    /// Returns its name for reports; that of a dispatch is its pipeline's.
    pub(crate) fn name(&self) -> String {
        match self {
            Command::Dispatch(dispatch) => dispatch.pipeline.name(),
            Command::Copy { .. } => "a copy".into(),
            Command::Fill { .. } => "a fill".into(),
            Command::Update { .. } => "an update".into(),
            Command::Marker { .. } => "a marker".into(),
            Command::Barrier(..) => "a barrier".into(),
            Command::ResetQueries { .. } | Command::Timestamp { .. } => "a query".into(),
        }
    }

    /// Returns the memory that copies, fills and updates read and write. Markers are excluded: one may be
    /// written during other commands.
    pub(crate) fn spans(&self) -> Vec<(&Span, Access)> {
        match self {
            Command::Copy { from, to } => vec![(from, Access::Read), (to, Access::Write)],
            Command::Fill { to, .. } | Command::Update { to, .. } => vec![(to, Access::Write)],
            _ => Vec::new(),
        }
    }
}

impl Dispatch {
    /// Bytes of its arguments in memory: the push constants and the size of the grid.
    const ARGUMENT_BYTES: usize = PUSH_BYTES + 16;

    /// Returns the initial user SGPRs for a number of work-groups, which is not known when an indirect dispatch is
    /// recorded.
    pub(crate) fn registers(&self, groups: [u32; 3]) -> Vec<u32> {
        let mut registers = self.registers.clone();
        if let Some(first) = self.pipeline.binary.interface.grid_size
            && let Some(size) = registers.get_mut(first..first + 3)
        {
            size.copy_from_slice(&groups);
        }
        registers
    }

    fn needs_memory(&self) -> bool {
        let interface = &self.pipeline.binary.interface;
        interface.push_pointer.is_some() || interface.grid_pointer.is_some()
    }

    /// Sets the registers; `arguments` is the address of its arguments in the block.
    fn prepare(&mut self, arguments: u64) -> Reply {
        let interface = &self.pipeline.binary.interface;
        self.registers = vec![0; interface.count];
        let registers = &mut self.registers;
        let mut write = |register: usize, words: &[u32]| {
            let to = registers.get_mut(register..register + words.len());
            to.ok_or_else(|| unknown("register", register as u64)).map(|to| to.copy_from_slice(words))
        };
        for &(set, register) in &interface.sets {
            match self.sets.get(set).copied().unwrap_or(0) {
                0 => return Err(unknown("descriptor set that is not bound", set as u64)),
                address => write(register, &[address as u32])?,
            }
        }
        let words: &[u32] = bytemuck::cast_slice(&self.push);
        for (i, &word) in interface.inlined.iter().enumerate() {
            write(interface.first_inlined + i, &words[word..=word])?;
        }
        if let Some(register) = interface.push_pointer {
            write(register, &[arguments as u32])?;
        }
        if let Some(register) = interface.grid_pointer {
            let at = match &self.grid {
                Grid::Direct(_) => arguments + PUSH_BYTES as u64,
                Grid::Indirect(span) => span.address,
            };
            write(register, &[at as u32, (at >> 32) as u32])?;
        }
        Ok(())
    }

    /// Returns the bytes of its arguments in memory.
    fn arguments(&self) -> Vec<u8> {
        let mut bytes = self.push.to_vec();
        if let Grid::Direct(groups) = &self.grid {
            bytes.extend_from_slice(bytemuck::cast_slice(groups));
        }
        bytes.resize(Dispatch::ARGUMENT_BYTES, 0);
        bytes
    }
}
