//! Large works, and what the plain way made of them: retained from route to route.

use super::programs::{prepared_in, run};
use super::work::{self, Work};
use crate::isolate::protocol::ProductShape;
use ggml_core::Result;
use ggml_core::backend::{Backend, Program, Slice, Usage};
use ggml_core::evaluate::bind;
use std::rc::Rc;

/// Bytes that are copied before each timed run, so that no operand is left in a cache: as much as the largest caches have.
const SWEEP: usize = 128 << 20;

/// Works, and what the plain way made of them, for the routes that follow.
#[derive(Default)]
pub(super) struct Retained {
    works: Vec<(Shape, Rc<Work>)>,
    /// By routes of the plain way, and name of the work.
    plain: Vec<((String, String), Plain)>,
    sweeps: Vec<(String, Option<Sweep>)>,
}

/// A product and its columns, or attention.
type Shape = (Option<ProductShape>, usize);

/// Program of the plain way, and its result.
pub(super) struct Plain {
    pub(super) program: Box<dyn Program>,
    pub(super) values: Vec<f32>,
}

/// Memory that is copied to empty the caches.
#[derive(Clone)]
pub(super) struct Sweep {
    from: Slice,
    to: Slice,
}

impl Sweep {
    /// Returns `None` if the device has no room for it.
    pub(super) fn new(device: &dyn Backend) -> Option<Sweep> {
        let slice = || Some(Slice { buffer: device.allocate(SWEEP, Usage::Compute).ok()?, offset: 0 });
        Some(Sweep { from: slice()?, to: slice()? })
    }

    pub(super) fn run(&self, device: &dyn Backend) -> Result<()> {
        device.copy(&self.from, &self.to, SWEEP)?;
        // Waits for the copy.
        device.download(&self.to.buffer, 0, &mut [0; 4])
    }
}

impl Retained {
    pub(super) fn work(&mut self, shape: Shape, small: bool) -> Result<Rc<Work>> {
        if let Some((_, work)) = self.works.iter().find(|(of, _)| *of == shape) {
            return Ok(work.clone());
        }
        let work = Rc::new(match shape {
            (Some(product), columns) => work::product(product, columns)?,
            (None, _) if small => work::attention(64, 2, 160, 40)?,
            (None, _) => work::attention(128, 16, 2048, 512)?,
        });
        self.works.push((shape, work.clone()));
        Ok(work)
    }

    /// Returns the plain way's program of a work on a device with the routes `below`, and its result.
    pub(super) fn plain(&mut self, (device, below): (&dyn Backend, &str), work: &Work) -> Result<&mut Plain> {
        let key = (below.to_string(), work.name.clone());
        let at = match self.plain.iter().position(|(of, _)| *of == key) {
            Some(at) => at,
            None => {
                let bindings = bind(device, &work.graph, &work.data)?;
                let mut program = prepared_in(device, work, &bindings)?;
                let values = run(program.as_mut(), work)?;
                self.plain.push((key, Plain { program, values }));
                self.plain.len() - 1
            }
        };
        Ok(&mut self.plain[at].1)
    }

    /// Forgets the programs of the plain way.
    pub(super) fn forget_plain(&mut self) {
        self.plain.clear();
    }

    /// Forgets what belongs to a device that is closed.
    pub(super) fn forget(&mut self, below: &str) {
        self.plain.retain(|((of, _), _)| of != below);
        self.sweeps.retain(|(of, _)| of != below);
    }

    pub(super) fn sweep(&mut self, (device, below): (&dyn Backend, &str)) -> Option<Sweep> {
        if let Some((_, sweep)) = self.sweeps.iter().find(|(of, _)| of == below) {
            return sweep.clone();
        }
        let sweep = Sweep::new(device);
        self.sweeps.push((below.to_string(), sweep.clone()));
        sweep
    }
}
