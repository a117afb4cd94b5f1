//! The Vulkan driver of Diptych.
#![deny(missing_docs)]
#![deny(unsafe_code)]

pub mod arch;
pub mod audit;
mod backend;
mod breadcrumb;
mod cache;
mod constants;
mod cost;
mod deadline;
mod device;
mod environment;
mod groups;
mod hazard;
mod io;
mod lower;
mod memory;
pub mod op;
mod options;
mod pipeline;
mod probe;
mod program;
#[allow(unsafe_code)]
mod raw;
mod record;
mod schedule;
mod transfer;
pub mod tuning;
mod windows;

pub use backend::VulkanBackend;
pub use device::{DeviceSummary, enumerate};
pub use options::VulkanOptions;
pub use pipeline::PipelineSpec;
pub use program::{ProgramShape, VulkanProgram};
pub use raw::physical::DeviceKind;
