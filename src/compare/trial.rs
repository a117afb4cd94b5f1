//! The child's part of a trial: lists a driver's devices, or computes a small graph.

use crate::backends::{DRIVERS, measure, views};
use crate::isolate::protocol::{Done, Message, TrialTask, Work};
use ggml_core::backend::Backend;
use ggml_core::{Error, Result};
use std::path::Path;
use std::time::Instant;

/// Lists the devices of the driver.
pub(crate) fn run_list(work: &Work, send: &mut dyn FnMut(Message)) -> Result<Done> {
    let driver = work.backend.as_str();
    if !DRIVERS.contains(&driver) {
        return Err(Error::argument("driver", driver, DRIVERS.join(", ")));
    }
    let library = work.hip_library.as_ref().map(|path| AsRef::<Path>::as_ref(path).to_path_buf());
    send(Message::Listed { views: views(driver, work.timeout, library)? });
    Ok(Done::default())
}

/// Checks the results of a backend and measures it as the task requests.
pub(crate) fn run_trial(task: &TrialTask, backend: &dyn Backend) -> Result<Done> {
    let start = Instant::now();
    measure::check(backend)?;
    let load_s = start.elapsed().as_secs_f64();
    let measured = task.measure.map(|budget| measure::speed(backend, budget)).transpose()?;
    let (eval_s, prompt_s) = measured.map_or((0.0, 0.0), |speed| (speed.step_s, speed.prompt_s));
    Ok(Done { load_s, eval_s, prompt_s, stats: backend.stats(), ..Done::default() })
}
