//! The card: its model, options, counters and memory use.

use crate::Faults;
use crate::Unavailable;
use crate::heaps::{HEAPS, Used};
use crate::radv::Library;
use crate::table::lock;
use ash::vk;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use virtual_gpu::{Checks, Counters, Random, Target};

/// A card that RADV compiles for and virtual-gpu executes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Model {
    /// Vega 10: RX Vega 56 and 64, MI25 (gfx900).
    Vega10,
    /// Vega 20: Radeon VII, MI50, MI60 (gfx906).
    #[default]
    Vega20,
    /// Navi 31: RX 7900 (gfx1100).
    Navi31,
    /// Strix Halo: Radeon 8060S (gfx1151).
    Gfx1151,
}

/// Facts of a model.
struct Facts {
    /// RADV's name of the family.
    name: &'static str,
    /// Name of the chip, as people say it.
    chip: &'static str,
    target: Target,
    /// Bytes of memory of the retail card.
    memory: u64,
    /// Vector instructions of 32 lanes that start in a cycle, clock in Hz and bytes per second, for the simulated
    /// clock.
    rates: (f64, f64, f64),
}

const FACTS: [Facts; 4] = [
    Facts {
        name: "vega10",
        chip: "Vega 10",
        target: Target::Gfx900,
        memory: 8 << 30,
        rates: (128.0, 1.5e9, 484e9),
    },
    Facts {
        name: "vega20",
        chip: "Vega 20",
        target: Target::Gfx906,
        memory: 16 << 30,
        rates: (120.0, 1.725e9, 1024e9),
    },
    Facts {
        name: "navi31",
        chip: "Navi 31",
        target: Target::Gfx1100,
        memory: 24 << 30,
        rates: (192.0, 2.5e9, 960e9),
    },
    Facts {
        name: "gfx1151",
        chip: "Strix Halo",
        target: Target::Gfx1151,
        memory: 32 << 30,
        rates: (80.0, 2.9e9, 256e9),
    },
];

impl Model {
    /// All models.
    pub const ALL: [Model; 4] = [Model::Vega10, Model::Vega20, Model::Navi31, Model::Gfx1151];

    fn facts(self) -> &'static Facts {
        &FACTS[self as usize]
    }

    /// Returns RADV's name of the family.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Returns the name of the chip ("Navi 31").
    pub(crate) fn chip(self) -> &'static str {
        self.facts().chip
    }

    /// Returns the processor of the card.
    pub fn target(self) -> Target {
        self.facts().target
    }

    /// Returns the model with a name: RADV's name of the family, or LLVM's of the processor.
    pub fn parse(name: &str) -> Option<Model> {
        Model::ALL.into_iter().find(|m| m.name() == name || m.target().name() == name)
    }

    /// Returns the bytes of memory of the retail card.
    pub fn memory(self) -> u64 {
        self.facts().memory
    }

    /// Returns the vector instructions of 32 lanes that start in a cycle, clock in Hz and bytes per second, for the
    /// simulated clock.
    pub(crate) fn rates(self) -> (f64, f64, f64) {
        self.facts().rates
    }

    /// True if the GPU is part of a processor and shares its memory.
    pub(crate) fn is_integrated(self) -> bool {
        self == Model::Gfx1151
    }

    /// True for RDNA 3: resources have its format, and wavefronts have 32 or 64 lanes.
    pub(crate) fn is_rdna3(self) -> bool {
        matches!(self, Model::Navi31 | Model::Gfx1151)
    }
}

/// Options of a card.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Model of the card.
    pub model: Model,
    /// Bytes of device memory.
    pub memory: u64,
    /// Bytes of host memory that the card can use.
    pub host_memory: u64,
    /// Shader errors that make the device lost.
    pub checks: Checks,
    /// Choices left to chance within a dispatch, and in new memory: by default all but approximations.
    pub random: Random,
    /// Seed of what is random there.
    pub seed: u64,
    /// Seed for the order of commands that no barrier orders; `None` runs them as recorded.
    pub order: Option<u64>,
    /// True if a memory conflict makes the device lost: two commands without a barrier between them access
    /// the same memory, and at least one writes; or a command uses what an earlier one wrote, and the access masks of the
    /// barriers between them do not name both accesses.
    pub hazards: bool,
    /// Calls with injected failures or hangs.
    pub faults: Faults,
    /// Function that modifies the machine code of a pipeline (given by name) before it is loaded, to plant an
    /// error that must be detected.
    pub rewrite: Option<fn(&str, &mut [u32])>,
    /// Function that modifies the access masks (source and destination) of barriers as they are recorded, to plant an error
    /// that must be detected.
    pub change_masks: Option<fn(&mut [vk::AccessFlags2; 2])>,
    /// Path of RADV's library; `None` uses its manifest.
    pub library: Option<PathBuf>,
}

impl Options {
    /// Returns the options of a retail card with all checks (except LDS alignment), recorded order and no
    /// faults.
    pub fn new(model: Model) -> Options {
        Options {
            model,
            memory: model.memory(),
            host_memory: 16 << 30,
            checks: Checks { alignment: false, ..Checks::ALL },
            random: Random { approximations: false, ..Random::ALL },
            seed: 1,
            order: None,
            hazards: true,
            faults: Faults::default(),
            rewrite: None,
            change_masks: None,
            library: None,
        }
    }
}

/// A virtual card.
#[derive(Clone, Debug)]
pub struct Card {
    pub(crate) shared: Arc<Shared>,
}

/// State shared by a card's instances.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) radv: Arc<Library>,
    counters: Mutex<BTreeMap<String, Counters>>,
    used: Used,
    refused: Mutex<Option<Unavailable>>,
}

thread_local! {
    /// Card for the next instance that this thread creates.
    static NEXT: RefCell<Option<Card>> = const { RefCell::new(None) };
}

impl Card {
    /// Creates a card.
    ///
    /// # Errors [`Unavailable`] if RADV is not installed. Its version is checked when an instance is created.
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

    /// Makes this card that of the next instance created by this thread.
    pub(crate) fn is_next(&self) {
        NEXT.with(|next| *next.borrow_mut() = Some(self.clone()));
    }

    /// Returns and clears the card for the next instance of this thread.
    pub(crate) fn take_next() -> Option<Card> {
        NEXT.with(|next| next.borrow_mut().take())
    }

    /// Returns the path of RADV's library.
    pub fn library(&self) -> String {
        self.shared.radv.path.display().to_string()
    }

    /// Returns the reason why an instance was refused with `VK_ERROR_INCOMPATIBLE_DRIVER`.
    pub fn refusal(&self) -> Option<Unavailable> {
        lock(&self.shared.refused).clone()
    }

    /// Returns the options of the card.
    pub fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Returns the counters of all dispatches so far, by name of the pipeline.
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

    /// Returns the bytes in use of each heap.
    pub(crate) fn used(&self) -> [u64; HEAPS] {
        self.used.get()
    }

    /// Reserves bytes of a heap; an error if they exceed its limit.
    pub(crate) fn reserve(&self, heap: usize, bytes: u64) -> Result<(), ()> {
        let limit = if heap == 0 { self.options.memory } else { self.options.host_memory };
        self.used.reserve(heap, bytes, limit)
    }

    /// Releases bytes of a heap.
    pub(crate) fn release(&self, heap: usize, bytes: u64) {
        self.used.release(heap, bytes);
    }
}
