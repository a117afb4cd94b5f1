//! The card: what it is, how it is made, what it has done.

use crate::Faults;
use crate::Unavailable;
use crate::heaps::{HEAPS, Used};
use crate::radv::Library;
use crate::table::lock;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use virtual_gpu::{Checks, Counters, Target};

/// A card that RADV compiles for and virtual-gpu executes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Model {
    /// Vega 10: RX Vega 56 and 64, MI25 (gfx900).
    Vega10,
    /// Vega 20: Radeon VII, MI50, MI60 (gfx906).
    #[default]
    Vega20,
}

impl Model {
    /// All of them.
    pub const ALL: [Model; 2] = [Model::Vega10, Model::Vega20];

    /// RADV's name of the family.
    pub fn name(self) -> &'static str {
        match self {
            Model::Vega10 => "vega10",
            Model::Vega20 => "vega20",
        }
    }

    /// The processor on it.
    pub fn target(self) -> Target {
        match self {
            Model::Vega10 => Target::Gfx900,
            Model::Vega20 => Target::Gfx906,
        }
    }

    /// The card of a name: RADV's of the family, or LLVM's of the processor.
    pub fn parse(name: &str) -> Option<Model> {
        Model::ALL.into_iter().find(|m| m.name() == name || m.target().name() == name)
    }

    /// Bytes of memory that it was sold with.
    pub fn memory(self) -> u64 {
        match self {
            Model::Vega10 => 8 << 30,
            Model::Vega20 => 16 << 30,
        }
    }

    /// Compute units, clock in Hz and bytes a second, for the made-up clock.
    pub(crate) fn rates(self) -> (f64, f64, f64) {
        match self {
            Model::Vega10 => (64.0, 1.5e9, 484e9),
            Model::Vega20 => (60.0, 1.725e9, 1024e9),
        }
    }
}

/// How a card is made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Which card.
    pub model: Model,
    /// Bytes of its own memory.
    pub memory: u64,
    /// Bytes of the host's memory that it can use.
    pub host_memory: u64,
    /// What mistakes of shaders break the device.
    pub checks: Checks,
    /// Commands that no barrier orders run in an order that this seed makes; without it, as they were recorded.
    pub order: Option<u64>,
    /// Whether two commands that no barrier orders and that meet in memory, at least one of them writing, break the
    /// device. Takes a third of the time more.
    pub hazards: bool,
    /// Calls that fail or hang.
    pub faults: Faults,
    /// Changes the machine code of a pipeline of this name before it is loaded: to plant a mistake and see that it is found.
    pub rewrite: Option<fn(&str, &mut [u32])>,
    /// RADV's library, where it is not the one that its manifest names.
    pub library: Option<PathBuf>,
}

impl Options {
    /// A card as it was sold, with all checks (but that of alignment in LDS), no order and no faults.
    pub fn new(model: Model) -> Options {
        Options {
            model,
            memory: model.memory(),
            host_memory: 16 << 30,
            checks: Checks { alignment: false, ..Checks::ALL },
            order: None,
            hazards: true,
            faults: Faults::default(),
            rewrite: None,
            library: None,
        }
    }
}

/// A virtual card.
#[derive(Clone, Debug)]
pub struct Card {
    pub(crate) shared: Arc<Shared>,
}

/// What a card's instances share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) radv: Arc<Library>,
    counters: Mutex<BTreeMap<String, Counters>>,
    used: Used,
    refused: Mutex<Option<Unavailable>>,
}

thread_local! {
    /// The card that the next instance of this thread belongs to.
    static NEXT: RefCell<Option<Card>> = const { RefCell::new(None) };
}

impl Card {
    /// A card.
    ///
    /// # Errors
    /// [`Unavailable`] where RADV is not installed. Whether its version is right is known when an instance is made.
    pub fn new(options: Options) -> Result<Card, Unavailable> {
        let radv = Library::load(options.library.as_deref())?;
        Ok(Card {
            shared: Arc::new(Shared {
                options,
                radv,
                counters: Mutex::default(),
                used: Used::default(),
                refused: Mutex::default(),
            }),
        })
    }

    /// The next instance that this thread makes has this card.
    pub(crate) fn is_next(&self) {
        NEXT.with(|next| *next.borrow_mut() = Some(self.clone()));
    }

    /// The card that was to be the next on this thread; says it once.
    pub(crate) fn take_next() -> Option<Card> {
        NEXT.with(|next| next.borrow_mut().take())
    }

    /// Path of RADV's library.
    pub fn library(&self) -> String {
        self.shared.radv.path.display().to_string()
    }

    /// Why an instance was refused with `VK_ERROR_INCOMPATIBLE_DRIVER`.
    pub fn refusal(&self) -> Option<Unavailable> {
        lock(&self.shared.refused).clone()
    }

    /// How it was made.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// What all dispatches so far did, by the name of the pipeline.
    pub fn counters(&self) -> Vec<(String, Counters)> {
        lock(&self.shared.counters).iter().map(|(name, counters)| (name.clone(), *counters)).collect()
    }
}

impl Shared {
    pub(crate) fn refuse(&self, why: Unavailable) {
        *lock(&self.refused) = Some(why);
    }

    pub(crate) fn count(&self, pipeline: &str, counters: Counters) {
        *lock(&self.counters).entry(pipeline.to_string()).or_default() += counters;
    }

    /// Bytes in use of each heap.
    pub(crate) fn used(&self) -> [u64; HEAPS] {
        self.used.get()
    }

    /// Takes bytes of a heap, if it has so many.
    pub(crate) fn reserve(&self, heap: usize, bytes: u64) -> Result<(), ()> {
        let limit = if heap == 0 { self.options.memory } else { self.options.host_memory };
        self.used.take(heap, bytes, limit)
    }

    /// Gives bytes of a heap back.
    pub(crate) fn release(&self, heap: usize, bytes: u64) {
        self.used.give(heap, bytes);
    }
}
