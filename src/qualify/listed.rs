//! The checks of a route, with programs that other threads prepare.

use super::ahead::{Promise, Workers};
use super::programs::{Programs, of_group};
use super::scope::is_taken;
use super::work::Work;
use ggml_core::backend::{Backend, Program};
use ggml_core::catalogue::{Case, Judged};
use ggml_core::precision::Precision;
use ggml_core::reference::ReferenceBackend;
use ggml_core::routes::RouteUse;
use ggml_core::{Deadline, Result};
use std::sync::Arc;

/// Runs of known answers and of the first cases, each in other memory; later cases have two.
pub(super) const RUNS: usize = 5;

/// Number of cases with [`RUNS`] runs.
const REPEATED: usize = 8;

/// Types that most models have. Their cases come first.
const ESSENTIAL: [&str; 5] = ["F16", "Q8_0", "Q4_0", "Q4_K", "Q6_K"];

/// Heads of few models, whose kernels compilers take seconds for.
const LARGE_HEADS: [&str; 4] = ["d=512", "d=544", "d=552", "d=576"];

/// True for a case of a type and of heads that most models have.
pub(super) fn is_essential(case: &Case) -> bool {
    let types = ESSENTIAL.iter().any(|name| case.name.contains(name));
    types && LARGE_HEADS.iter().all(|heads| !case.name.contains(heads))
}

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
    /// True if a later route is compared with the same plain way.
    pub(super) is_plain_later: bool,
    pub(super) answers: Vec<Answer>,
    /// Large works that take the route; those of a group have the same weights.
    pub(super) groups: Vec<Vec<Arc<Work>>>,
    /// Product of one token that says how fast the memory of the weights is, for a route that changes it.
    pub(super) single: Option<Arc<Work>>,
    /// Programs of the first group, if the device has much memory.
    pub(super) coming: Option<Coming>,
    pub(super) cases: Vec<ListedCase>,
    /// True if some cases were left out.
    pub(super) partial: bool,
}

impl Listed {
    /// Returns the use of a route or candidate by the device that should use it.
    pub(super) fn use_of(&self, name: &str) -> Option<&RouteUse> {
        let device = self.fast.device();
        device.routes.iter().chain(&device.candidates).find(|of_device| of_device.name == name)
    }

    /// Adds cases, those that most models have first. Others are left out unless all are wanted, or there are none of the
    /// first kind.
    pub(super) fn add_cases(
        &mut self,
        mut cases: Vec<(Case, Precision)>,
        full: bool,
        workers: &Workers,
        deadline: Deadline,
    ) {
        cases.sort_by_key(|(case, _)| !is_essential(case));
        let essential = cases.partition_point(|(case, _)| is_essential(case));
        self.partial = !full && essential > 0 && essential < cases.len();
        if self.partial {
            cases.truncate(essential);
        }
        let runs = |n: usize| if n < REPEATED { RUNS } else { 2 };
        let cases = cases.into_iter().enumerate();
        let listed =
            cases.map(|(n, (case, precision))| self.case(case, precision, runs(n), (workers, deadline)));
        self.cases = listed.collect();
    }

    /// Queues the preparation of a case.
    pub(super) fn case(
        &self,
        case: Case,
        precision: Precision,
        runs: usize,
        (workers, deadline): (&Workers, Deadline),
    ) -> ListedCase {
        let (name, device) = (case.name.clone(), self.fast.clone());
        let ready = workers.promise(move || {
            if deadline.passed() {
                return Ok(None);
            }
            let judged = Judged::new(case, &ReferenceBackend::default())?;
            let programs = (0..runs).map(|_| judged.prepare(device.as_ref(), precision));
            let programs: Option<Programs> = programs.collect::<Result<Option<_>>>()?;
            Ok(programs.map(|programs| (judged, programs)))
        });
        ListedCase { name, precision, ready }
    }

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
            // The cases that were queued before are needed after all groups.
            workers.promise_first(move || of_group(device.as_ref(), &group, times))
        };
        Coming { fast: promise(&listed.fast, 2), plain: needs_plain.then(|| promise(&listed.plain, 1)) }
    }
}
