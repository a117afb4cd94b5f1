//! AMD's kernel driver for compute, `/dev/kfd`, played in user space: the real ROCm (libamdhip64 and what lies
//! below it, unchanged) runs on a virtual card of [`virtual_gpu`], in the memory of the process, without a card and
//! without rights.
//!
//! ```text
//! cargo build --release -p virtual-kfd-preload
//! LD_PRELOAD=$PWD/target/release/libvirtual_kfd_preload.so VIRTUAL_KFD_CARDS=mi50 program
//! ```
//!
//! The library to preload answers for names of files ([`Files`] stand for sysfs) and passes ioctls to a [`Driver`]. Descriptors of `/dev/kfd` and of render nodes are those of one sparse file in memory, so
//! that the runtime's own mappings of them show the card's memory. Each queue has a thread that takes packets from
//! its ring: kernels run on the processor's emulator, with all its checks.
//!
//! [`Options`] choose cards, the version of the interface, and faults ([`Fault`]).
//!
//! # Limits
//!
//! It is a model of the kernel driver by its sources and its behaviour: it proves programs against AMD's user space,
//! not against AMD's kernel or hardware. Time is not modelled. The processors are those of `virtual-gpu`. Missing:
//! cooperative queues, debugging and profiling; their ioctls answer `ENOTTY`, as those of a kernel without them.
#![deny(missing_docs)]
#![cfg(target_os = "linux")]

mod abi;
mod allocation;
mod asked;
mod card;
mod dmabuf;
mod driver;
mod events;
mod exported;
mod files;
mod inject;
mod interrupts;
mod memory;
mod options;
mod process;
mod queue;
mod ranges;
mod record;
mod ring;
mod shared;
mod slots;
mod smi;
mod space;
mod svm;
mod tools;
pub mod topology;
mod waits;

pub use card::{CARDS, Card};
pub use dmabuf::{Buffer, DESCRIPTION_BYTES};
pub use driver::Driver;
pub use files::Files;
pub use inject::{Fault, Kind, Point};
pub use options::{MOST_CARDS, NEWEST, OptionError, Options};
