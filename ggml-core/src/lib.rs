//! The part of Diptych that knows no GPU: element types, tensors, graphs, operations, planning, GGUF files, the
//! [`Backend`](backend::Backend) trait, and three backends that run anywhere:
//!
//! * [`mod@reference`]: every operation as its definition says, in f64, one thread. It shares no code with any other
//!   backend, not even a dequantiser, so that agreement with it means something.
//! * [`cpu`]: SIMD and threads; reads weights from the memory map without a copy.
//! * [`null`]: accepts everything, computes nothing, fails or hangs on request. It proves the trait and tests callers.
//!
//! The crate depends on no GPU backend, and the GPU backends do not know each other. What they share lives here: the
//! kernel parameter structures ([`kernel`]) and the planner ([`plan`]).
//!
//! Names follow ggml: `ne` are extents (`ne[0]` varies fastest), `nb` byte strides, MUL_MAT, RMS_NORM, ROPE and so on.
#![deny(missing_docs)]

pub mod backend;
pub mod bound;
pub mod catalogue;
pub mod cost;
pub mod cpu;
pub mod deadline;
pub mod decode;
pub mod dtype;
pub mod encode;
pub mod error;
pub mod evaluate;
pub mod exact;
pub mod fuse;
pub mod gguf;
pub mod graph;
pub mod grids;
pub mod hash;
pub mod kernel;
pub mod mapped;
pub mod metrics;
pub mod null;
pub mod op;
mod options;
pub mod phase;
pub mod plan;
pub mod precision;
pub mod reference;
pub mod repeat;
pub mod rng;
pub mod schedule;
pub mod shape;
pub mod tensor;

pub use deadline::Deadline;
pub use dtype::DType;
pub use error::{Error, MemoryNeed, Missing, Phase, Result};
pub use graph::Graph;
pub use op::Op;
pub use precision::Precision;
pub use shape::Shape;
pub use tensor::{Source, Tensor, TensorId};
