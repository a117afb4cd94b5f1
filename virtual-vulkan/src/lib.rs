//! Vulkan for compute on a virtual Vega: Mesa's RADV compiles the shaders, and the machine code that it makes is executed
//! instruction by instruction by [`virtual_gpu`]. No card, no kernel driver, no loader.
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
//! RADV has null devices: with `RADV_FORCE_FAMILY` it compiles for a family without hardware. Instances, physical and
//! logical devices, shader modules, pipelines and their caches are RADV's own, so features, limits and code generation
//! are those of the driver that users have. After a pipeline is made its machine code is read from a pipeline cache.
//! Memory, buffers, descriptor sets, command buffers, the queue, semaphores, fences and queries are this library's.
//!
//! The layout of the cache belongs to one version of Mesa, [`MESA`]. With another this library refuses to work
//! ([`Unavailable::Version`]). What a compiled shader says of itself twice is compared before it is run.
//!
//! # What it shows
//!
//! What virtual-gpu reports ([`virtual_gpu::Checks`]): accesses beyond the range of a descriptor, missing waits and
//! barriers within a work-group, races in LDS, uninitialised LDS, freed memory. With [`Options::order`] a missing pipeline
//! barrier. A shader that goes wrong ends in `VK_ERROR_DEVICE_LOST`; `VK_EXT_device_fault` tells which pipeline did what,
//! and where.
//!
//! # What it does not
//!
//! Storage and uniform buffers, in descriptor sets with one descriptor each or arrays of them; copies, fills, updates of
//! buffers; dispatches, indirect ones too; timestamps of a made-up clock. There are no images, samplers, events, secondary
//! command buffers, sparse memory or graphics: functions for these are absent. Time, caches, the kernel driver and the
//! coherence of real memory are not modelled.
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

pub use card::{Card, Model, Options};
pub use environment::{CHECKS_VARIABLE, FAULTS_VARIABLE, ORDER_VARIABLE};
pub use virtual_gpu::faults::{Fault, Faults, Wrong};
pub use virtual_gpu::{Checks, Counters};

/// The version of Mesa whose compiled shaders this library can read.
pub const MESA: &str = "25.0";

/// `vkGetInstanceProcAddr`, for a loader. Instances that are not made through [`Card::entry`] have a card as the
/// environment says: `DIPTYCH_VIRTUAL_CARD` (`vega20`, `vega10`) and the variables of this crate.
pub fn get_instance_proc_addr() -> ash::vk::PFN_vkGetInstanceProcAddr {
    calls::names::vk_get_instance_proc_addr
}

/// Why there is no virtual card.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// RADV's library is not there.
    #[error("RADV, Mesa's Vulkan driver for AMD, is not there: {0}")]
    Library(String),
    /// RADV is of another version; what it says of itself.
    #[error("this needs RADV of Mesa {MESA}, which it can read compiled shaders of; this is '{0}'")]
    Version(String),
    /// A variable of the environment has a value that is not understood.
    #[error("{0}")]
    Options(String),
}
