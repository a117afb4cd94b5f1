//! GPU-independent core of Diptych: element types, tensors, graphs, operations, planning, GGUF files, the
//! [`Backend`](backend::Backend) trait, and three backends that run on any machine:
//!
//! * [`mod@reference`]: every operation as defined, in f64, on one thread. It shares no code with any other
//!   backend, not even a dequantiser, so that agreement with it is meaningful.
//! * [`cpu`]: SIMD and threads. It reads weights from the memory map without a copy.
//! * [`null`]: accepts everything, computes nothing, fails or hangs on request. It shows that the trait can
//!   be implemented and serves to test callers.
//!
//! The crate depends on no GPU backend, and the GPU backends do not depend on each other. Their common parts
//! are here: the kernel parameter structures ([`kernel`]) and the planner ([`plan`]).
//!
//! Names follow ggml: `ne` are extents (`ne[0]` varies fastest), `nb` are byte strides; MUL_MAT, RMS_NORM,
//! ROPE and so on.
#![deny(missing_docs)]

pub mod backend;
pub mod bound;
pub mod buffers;
pub mod catalogue;
pub mod cost;
pub mod cpu;
pub mod deadline;
pub mod decode;
pub mod dtype;
pub mod encode;
pub mod environment;
pub mod error;
pub mod escape;
pub mod evaluate;
pub mod exact;
pub mod expected;
pub mod exported;
pub mod files;
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
pub mod pair;
pub mod phase;
pub mod plan;
pub mod precision;
pub mod reference;
pub mod repeat;
pub mod rng;
pub mod routes;
pub mod schedule;
pub mod shape;
pub mod sync;
pub mod tensor;
pub mod threads;

pub use deadline::Deadline;
pub use dtype::DType;
pub use error::{Error, MemoryNeed, Missing, Phase, Result};
pub use graph::Graph;
pub use op::Op;
pub use precision::Precision;
pub use shape::Shape;
pub use tensor::{Source, Tensor, TensorId};
