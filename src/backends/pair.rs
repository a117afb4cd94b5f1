//! One card under two drivers.

use super::{BackendName, OpenOptions, open_named};
use crate::view::{Pairing, View};
use ggml_core::backend::Backend;
use ggml_core::pair::Pair;
use ggml_core::{Error, Missing, Phase, Result};
use std::sync::Arc;

/// Opens both drivers and joins them. If they cannot share memory, the first one goes on alone, and the reason is
/// logged.
///
/// # Errors
/// The errors of opening either driver; [`Error::Unavailable`] if they show two different cards.
pub(super) fn open(names: &[BackendName; 2], options: &OpenOptions) -> Result<Arc<dyn Backend>> {
    let [first, second] = names;
    let (exporter, importer) = (open_named(first, options)?, open_named(second, options)?);
    // The name says which card is emulated.
    let view = |name: &BackendName, backend: &Arc<dyn Backend>| View {
        backend: name.to_string(),
        ..View::of(backend.device())
    };
    let views = [view(first, &exporter), view(second, &importer)];
    // Without evidence either way, the proof of the shared memory decides.
    if let Pairing::Different(why) = Pairing::of(&views[0], &views[1]) {
        return Err(Error::Unavailable {
            backend: format!("{first}+{second}"),
            phase: Phase::OpenDevice,
            missing: Missing::Device,
            reason: format!("two drivers of one card are needed, but {why}"),
        });
    }
    match Pair::new(exporter.clone(), importer) {
        Ok(pair) => {
            if options.both_drivers {
                pair.require_both();
            }
            Ok(Arc::new(pair))
        }
        Err(error @ (Error::Unavailable { .. } | Error::Driver { .. })) if !options.both_drivers => {
            tracing::warn!(target: "diptych::pair", "{first} goes on alone: {error}");
            Ok(exporter)
        }
        Err(error) => Err(error),
    }
}
