//! The checks of a route, with programs that other threads prepare.

use super::ahead::{Promise, Workers};
use super::programs::{Programs, of_group};
use super::scope::is_taken;
use super::work::Work;
use ggml_core::backend::{Backend, Program};
use ggml_core::catalogue::Judged;
use ggml_core::precision::Precision;
use std::sync::Arc;

/// A work with known answers, or with infinities and NaN: then the plain way has a program too.
pub(super) struct Answer {
    pub(super) work: Arc<Work>,
    pub(super) programs: Promise<Programs>,
    pub(super) plain: Option<Promise<Box<dyn Program>>>,
}

/// A case of the catalogue.
pub(super) struct ListedCase {
    pub(super) name: String,
    pub(super) precision: Precision,
    /// `None` if the device does not support it.
    pub(super) ready: Promise<Option<(Judged, Programs)>>,
}

/// The checks of a route, and the devices that they compare.
pub(super) struct Listed {
    pub(super) plain: Arc<dyn Backend>,
    pub(super) fast: Arc<dyn Backend>,
    /// The routes of `plain`.
    pub(super) below: String,
    pub(super) answers: Vec<Answer>,
    /// Large works that take the route; those of a group have the same weights.
    pub(super) groups: Vec<Vec<Arc<Work>>>,
    /// Programs of the first group, if the device has much memory.
    pub(super) coming: Option<Coming>,
    pub(super) cases: Vec<ListedCase>,
    /// True if some cases were left out.
    pub(super) partial: bool,
}

impl Listed {
    /// True if the route changes the kernels of a work.
    pub(super) fn is_taken(&self, work: &Work) -> bool {
        is_taken([self.plain.as_ref(), self.fast.as_ref()], &work.graph, Precision::Fast)
    }
}

/// Programs of a group's works that other threads prepare.
pub(super) struct Coming {
    /// Programs of the route, then the same again with inputs and results in other memory.
    pub(super) fast: Promise<Programs>,
    /// Programs of the plain way, unless they are retained.
    pub(super) plain: Option<Promise<Programs>>,
}

impl Coming {
    /// Queues the preparation of a group.
    pub(super) fn of(workers: &Workers, listed: &Listed, group: &[Arc<Work>], needs_plain: bool) -> Coming {
        let promise = |device: &Arc<dyn Backend>, times: usize| {
            let (device, group) = (device.clone(), group.to_vec());
            workers.promise(move || of_group(device.as_ref(), &group, times))
        };
        Coming { fast: promise(&listed.fast, 2), plain: needs_plain.then(|| promise(&listed.plain, 1)) }
    }
}
