//! Inference for GGUF models on AMD cards through two drivers, Vulkan and HIP, behind one interface, with a
//! CPU reference that decides which driver is right.
//!
//! ```no_run
//! use diptych::{Model, OpenOptions, SessionOptions};
//!
//! # fn main() -> diptych::Result<()> {
//! let backend = diptych::open("vulkan", &OpenOptions::default())?;
//! let model = Model::load("model.gguf", backend)?;
//! let mut session = model.session(&SessionOptions::default())?;
//! let mut logits = session.prefill(&[1, 15, 27])?;
//! for _ in 0..16 {
//!     let token = diptych::greedy(&logits)?;
//!     println!("{token}");
//!     logits = session.decode(token)?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! * [`backends`]: backends by name, and the devices of this machine
//! * [`chat`]: chat templates
//! * [`model`]: hyperparameters, weights, graphs of the architectures
//! * [`sampling`]: choosing tokens
//! * [`session`]: a KV cache, prefill and decode
//! * [`tokenizer`]: text to tokens and back, from a file's metadata
//! * [`generate`]: text from a prompt, token by token
//! * [`mod@bench`]: tokens per second
//! * [`mod@perplexity`]: how probable the tokens of a text are
//! * [`compare`]: the same work on several backends, each in its own process
//! * [`mod@probe`]: for each card and driver, layer by layer, the conditions that allow or block its use
//! * [`mod@qualify`]: the fast ways of a card, checked and timed on the card itself
//! * [`synthesize`]: models with seeded random weights, for trying everything without downloads
//! * [`mod@quantize`]: files with their weights in other types
//! * [`npy`]: arrays for other programs
//! * [`program`]: handling of results and errors in programs
//! * [`mod@leave`]: ending a process whose driver hangs
//!
//! The core (tensors, graphs, operations, the `Backend` trait) is the crate [`ggml_core`], re-exported as
//! [`ggml`].
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(missing_docs)]

pub use ggml_core as ggml;
pub use ggml_core::precision::Precision;
pub use ggml_core::routes::{Policy, Routes};
pub use ggml_core::{DType, Error, Missing, Phase, Result};

mod backend_name;
pub mod backends;
pub mod bench;
mod cancel;
#[cfg(feature = "chat")]
pub mod chat;
#[cfg(feature = "compare")]
pub mod compare;
mod crash;
mod driver_call;
mod event_text;
mod exit_status;
pub mod generate;
#[cfg(feature = "compare")]
mod isolate;
mod json;
pub mod leave;
pub mod model;
pub mod npy;
pub mod perplexity;
#[cfg(feature = "probe")]
pub mod probe;
pub mod program;
#[cfg(feature = "compare")]
pub mod qualify;
pub mod quantize;
mod remedy;
pub mod sampling;
pub mod session;
mod shell;
pub mod statistics;
pub mod synthesize;
pub mod tokenizer;
mod view;
mod virtual_kfd;

pub use backends::{OpenOptions, devices, open};
pub use model::Model;
pub use sampling::{Sampler, SamplerOptions};
pub use session::{Session, SessionOptions, greedy};
pub use tokenizer::{Detokenizer, Tokenizer};

/// Programs of the README, compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
