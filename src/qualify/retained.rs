//! Programs of the plain way and what they computed: retained from route to route.

use super::found::Checked;
use super::work::Work;
use ggml_core::Result;
use ggml_core::backend::{Backend, Program, Slice, Usage};
use std::sync::Arc;

/// Bytes that are copied before each timed run, so that no operand is left in a cache: as much as the largest caches have.
const SWEEP: usize = 128 << 20;

/// Results of the plain way and its programs, for the routes that follow.
pub(super) struct Retained {
    /// By routes of the plain way, and name of the work.
    plain: Vec<((String, String), Plain)>,
    /// `None` where caches need not be emptied, and for a device without room.
    pub(super) sweep: Option<Arc<Sweep>>,
}

/// Program of the plain way, and the bytes of its result; none where the reference's is known.
pub(super) struct Plain {
    pub(super) program: Box<dyn Program>,
    pub(super) values: Arc<Vec<u8>>,
}

/// Memory that is copied to empty the caches.
pub(super) struct Sweep {
    device: Arc<dyn Backend>,
    from: Slice,
    to: Slice,
}

impl Sweep {
    /// Returns `None` if the device has no room for it.
    pub(super) fn new(device: &Arc<dyn Backend>) -> Option<Sweep> {
        let slice = || Some(Slice { buffer: device.allocate(SWEEP, Usage::Compute).ok()?, offset: 0 });
        Some(Sweep { device: device.clone(), from: slice()?, to: slice()? })
    }

    pub(super) fn run(&self) -> Result<()> {
        self.device.copy(&self.from, &self.to, SWEEP)?;
        // Waits for the copy.
        self.device.download(&self.to.buffer, 0, &mut [0; 4])
    }
}

impl Retained {
    pub(super) fn new(sweep: Option<Sweep>) -> Retained {
        Retained { plain: Vec::new(), sweep: sweep.map(Arc::new) }
    }

    /// True if the plain way has computed a work on a device with the routes `below`.
    pub(super) fn has(&self, below: &str, work: &Work) -> bool {
        self.plain.iter().any(|((of, name), _)| of == below && *name == work.name)
    }

    /// Returns the plain way's program of a work on a device with the routes `below`, and its result. `make` makes both
    /// if they are not retained.
    pub(super) fn plain(
        &mut self,
        below: &str,
        work: &Work,
        make: impl FnOnce() -> Checked<Plain>,
    ) -> Checked<&mut Plain> {
        let at = match self.plain.iter().position(|((of, name), _)| of == below && *name == work.name) {
            Some(at) => at,
            None => {
                self.plain.push(((below.to_string(), work.name.clone()), make()?));
                self.plain.len() - 1
            }
        };
        Ok(&mut self.plain[at].1)
    }

    /// Takes the programs of the plain way on a device with the routes `below` out: no later route needs them.
    pub(super) fn take(&mut self, below: &str) -> Vec<Plain> {
        let of_it = self.plain.extract_if(.., |((of, _), _)| of == below);
        of_it.map(|(_, plain)| plain).collect()
    }

    /// Forgets the programs of the plain way.
    pub(super) fn forget_plain(&mut self) {
        self.plain.clear();
    }
}
