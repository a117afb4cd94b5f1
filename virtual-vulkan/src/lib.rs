//! Vulkan for compute on a virtual AMD card: Mesa's RADV compiles the shaders, and [`virtual_gpu`] executes the
//! resulting machine code instruction by instruction. No card, no kernel driver, no loader.
//!
//! ```no_run
//! use virtual_vulkan::{Card, Model, Options};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let card = Card::new(Options::new(Model::Vega20))?;
//! // SAFETY: the functions are those of this library.
//! let entry = unsafe { ash::Entry::from_static_fn(card.entry()) };
//! // From here on as with any device.
//! let instance = unsafe { entry.create_instance(&Default::default(), None)? };
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//!
//! RADV has null devices: with `RADV_FORCE_FAMILY` it compiles for a family without hardware. Instances,
//! physical and logical devices, shader modules, pipelines and pipeline caches are RADV's own, so features,
//! limits and code generation are those of the driver that users have. After a pipeline is created, its
//! machine code, and whether its wavefronts have 32 or 64 lanes, is read from a pipeline cache. This library implements memory, buffers, descriptor sets,
//! command buffers, the queue, semaphores, fences and queries.
//!
//! The cache layout is specific to one version of Mesa, [`MESA`]. With another version this library returns
//! an error ([`Unavailable::Version`]). Values stored redundantly in a compiled shader are compared before it
//! runs.
//!
//! # What it detects
//!
//! The faults of virtual-gpu ([`virtual_gpu::Checks`]): accesses beyond the range of a descriptor, missing
//! waits and barriers within a work-group, races in LDS, uninitialised LDS, freed memory.
//! [`Options::hazards`] detects missing pipeline barriers, and [`Options::order`] makes them visible in
//! results. A faulting shader gives `VK_ERROR_DEVICE_LOST`; `VK_EXT_device_fault` reports the pipeline, the
//! fault and its location.
//!
//! # Limits
//!
//! Supported: storage and uniform buffers, in descriptor sets with single descriptors or arrays; copies,
//! fills and updates of buffers; direct and indirect dispatches; timestamps of a simulated clock. Not
//! supported: images, samplers, events, secondary command buffers, sparse memory and graphics; their
//! functions are absent. Real time, caches, the kernel driver and the coherence of real memory are not
//! modelled.
#![deny(missing_docs)]
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod calls;
mod card;
mod counted;
mod descriptors;
mod device;
mod environment;
mod execute;
mod heaps;
mod instance;
mod list;
mod memory;
mod order;
mod pipeline;
mod queries;
mod queue;
#[allow(unsafe_code)]
mod radv;
mod record;
mod reply;
mod semaphores;
mod table;
mod visible;

pub use card::{Card, Model, Options};
pub use environment::{CHECKS_VARIABLE, FAULTS_VARIABLE, ORDER_VARIABLE, SEED_VARIABLE};
pub use virtual_gpu::faults::{Faults, Injection, Wrong};
pub use virtual_gpu::{Checks, Counters, Random};

/// Version of Mesa whose compiled shaders this library can read.
pub const MESA: &str = "25.0";

/// Returns `vkGetInstanceProcAddr`, for a loader. Instances not created through [`Card::entry`] get a card
/// configured by the environment: `DIPTYCH_VIRTUAL_CARD` (`vega20`, `vega10`, `navi31`, `gfx1151`) and the
/// variables of this crate.
pub fn get_instance_proc_addr() -> ash::vk::PFN_vkGetInstanceProcAddr {
    calls::names::vk_get_instance_proc_addr
}

/// Reason for the absence of a virtual card.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// RADV's library cannot be loaded.
    #[error("RADV, Mesa's Vulkan driver for AMD, is not there: {0}")]
    Library(String),
    /// RADV has another version, given as its name and version.
    #[error("this needs RADV of Mesa {MESA}, which it can read compiled shaders of; this is '{0}'")]
    Version(String),
    /// An environment variable has an invalid value.
    #[error("{0}")]
    Options(String),
}
