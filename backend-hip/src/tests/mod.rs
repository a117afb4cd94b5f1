//! The backend over the fake driver: memory, transfers, programs, deadlines, errors.

mod embedded;
mod excerpts;
mod fake;
mod fake_kernels;
mod faults;
mod memory;
mod opening;
mod prepare;
mod programs;
mod rtc;

use crate::HipBackend;
use crate::driver::Driver;
use crate::options::{Copies, HipOptions};
use fake::Fake;
use fake_kernels::FakeKernels;
use ggml_core::Result;
use ggml_core::phase::Deadlines;
use std::sync::Arc;
use std::time::Duration;

/// Deadline of tests with a hang.
const SHORT: Duration = Duration::from_millis(200);

/// Upper limit for the time of a call in such a test: the deadline and a margin for a busy machine.
const SOON: Duration = Duration::from_secs(5);

/// Returns options that ignore this machine's system paths, with a small ring.
fn options() -> HipOptions {
    HipOptions {
        deadlines: Deadlines::all(Duration::from_secs(20)),
        staging_bytes: 4 * 4096,
        poison_memory: true,
        // A copy that times out would change the copy method when a device of this name is opened again.
        copies: Copies::Dma,
        system_root: "/nonexistent".into(),
        ..HipOptions::default()
    }
}

fn short() -> HipOptions {
    HipOptions { deadlines: Deadlines::all(SHORT), ..options() }
}

fn open(fake: &Arc<Fake>, options: HipOptions) -> Result<HipBackend> {
    let driver: Arc<dyn Driver> = fake.clone();
    HipBackend::open_with("hip", options, Box::new(move |_| Ok(driver)), Arc::new(FakeKernels::default()))
}

/// Returns a fake and a backend over it.
fn pair(options: HipOptions) -> (Arc<Fake>, HipBackend) {
    let fake = Arc::new(Fake::default());
    let backend = open(&fake, options).unwrap();
    (fake, backend)
}
