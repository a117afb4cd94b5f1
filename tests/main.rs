//! Tests of the library and its programs, a module for each subject. One program, which is linked once; tests that need a process
//! of their own have a program in a file beside this one.

mod ahead;
mod bench;
mod buffers;
#[cfg(feature = "chat")]
mod chat;
#[cfg(feature = "chat")]
mod chat_limits;
mod common;
#[cfg(feature = "chat")]
mod converted;
mod embed;
#[cfg(all(feature = "compare", feature = "chat"))]
mod evidence;
#[cfg(all(feature = "compare", feature = "virtual"))]
mod field_cases;
mod first_screen;
#[cfg(feature = "compare")]
mod forged;
mod forward;
mod generate;
mod invariance;
mod loading;
mod model_files;
#[cfg(feature = "compare")]
mod notes;
#[cfg(feature = "compare")]
mod offload;
#[cfg(feature = "compare")]
mod ops;
mod overlap;
#[cfg(feature = "compare")]
mod page;
mod pair;
#[cfg(feature = "compare")]
mod perplexity;
#[cfg(all(feature = "compare", feature = "virtual"))]
mod planted;
#[cfg(all(feature = "chat", feature = "probe"))]
mod probe;
#[cfg(feature = "chat")]
mod programs;
mod prompts;
#[cfg(all(target_os = "linux", feature = "compare", feature = "hip"))]
mod real_rocm;
#[cfg(feature = "compare")]
mod recorder;
#[cfg(all(feature = "compare", feature = "probe", feature = "virtual"))]
mod rocm_matrix;
#[cfg(all(target_os = "linux", feature = "compare", feature = "hip", feature = "chat"))]
mod rocm_programs;
#[cfg(feature = "virtual")]
mod routes;
mod session;
#[cfg(feature = "compare")]
mod statistics;
mod steps;
#[cfg(all(unix, feature = "compare"))]
mod strangers;
mod synthesized;
#[cfg(all(feature = "compare", feature = "virtual"))]
mod variants;
#[cfg(feature = "compare")]
mod verdicts;
