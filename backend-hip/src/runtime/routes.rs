//! The routes of a device: what each needs, which are used, and what verdicts on them depend on.

use super::copies;
use crate::advice::{self, Situation};
use crate::arch::{Matrix, Profile, Target};
use crate::driver::{Driver, Properties};
use crate::options::{Graphs, HipOptions, StreamMode};
use crate::provider::nvidia;
use crate::route::Route;
use crate::tuning::{CANDIDATES, Tuning};
use ggml_core::Result;
use ggml_core::backend::DeviceInfo;
use ggml_core::routes::{
    Able, Chosen, Identity, Record, RouteUse, Table, Used, cards, choose, choose_candidates, digest_of,
};

/// Abilities of a device and its runtime that routes need.
pub(super) struct Ability<'a> {
    pub(super) options: &'a HipOptions,
    pub(super) backend: &'a str,
    pub(super) driver: &'a dyn Driver,
    pub(super) properties: &'a Properties,
    pub(super) situation: &'a Situation,
    /// Profile of the device; its matrix units are those of the code.
    pub(super) profile: &'a Profile,
}

/// The routes and candidates that a device uses, and the use of each.
pub(super) struct Choice {
    pub(super) routes: Used<Route>,
    pub(super) candidates: Chosen,
    pub(super) uses: [Vec<RouteUse>; 2],
}

impl Ability<'_> {
    /// Chooses the routes and candidates of the device, by the verdicts on the identity in `info`.
    ///
    /// # Errors
    /// [`InvalidArgument`](ggml_core::Error::InvalidArgument) for an unknown route.
    pub(super) fn choose(&self, identity: &Identity) -> Result<Choice> {
        let routes = self.options.chosen_routes()?;
        routes.check::<Route>(CANDIDATES.iter().map(|candidate| candidate.row.name))?;
        let verdicts = Record::verdicts(self.options.routes_dir.as_deref(), identity, self.backend);
        let (used, of_routes) = choose(&routes, |route| self.able(route), &verdicts);
        let table = Tuning::table(self.profile);
        let (candidates, of_candidates) =
            choose_candidates((&table, CANDIDATES), (|_: &Tuning| true, |_: &str| true), &routes, &verdicts);
        Ok(Choice { routes: used, candidates, uses: [of_routes, of_candidates] })
    }

    fn able(&self, route: Route) -> Able {
        let no = |what: &str| Able::No(what.into());
        let against = |what: &str| Able::Against(what.into());
        let (driver, p) = (self.driver, self.properties);
        match route {
            Route::MatrixProducts | Route::MatrixAttention => {
                let is_known = cards::is_known("hip", self.profile.family.name(), route.row().name);
                match self.profile.matrix {
                    Matrix::None => no("the device, or the code for it, has no matrix units"),
                    _ if is_known => Able::Known,
                    _ => Able::Unproven,
                }
            }
            Route::Graphs if !driver.has_graphs() => no("the runtime has no graphs"),
            Route::Graphs if self.options.stream != StreamMode::Own => no("the NULL stream has no graphs"),
            Route::Graphs if advice::graphs(self.situation, Graphs::Auto) == Graphs::Off => {
                against("graphs are reported to fail with this version of the runtime on this processor")
            }
            Route::Graphs if driver.major().is_none_or(|major| major >= 6) => Able::Known,
            Route::Graphs => Able::Unproven,
            Route::GraphBranches if !driver.has_branches() => no("graphs of the runtime have no branches"),
            Route::GraphBranches if driver.major().is_none() => Able::Known,
            Route::GraphBranches => {
                against("not every release of the runtime is known to run branches correctly")
            }
            Route::KernelCopies if !p.arch.starts_with("gfx") => {
                against("copies of this runtime are reliable")
            }
            Route::KernelCopies if copies::by_kernel(p, self.backend) => Able::Known,
            Route::KernelCopies => {
                against("the device has memory of its own, which the runtime fills faster")
            }
            Route::HostWeights if copies::host_weights(p) => Able::Known,
            Route::HostWeights => against("the device has memory of its own"),
            Route::CachedWeights if driver.name() == nvidia::NAME => {
                no("the runtime has one kind of host memory")
            }
            // Weights are not there unless somebody asks for it.
            Route::CachedWeights if !copies::host_weights(p) => against("the device has memory of its own"),
            Route::CachedWeights => Able::Unproven,
        }
    }
}

/// Returns what verdicts on a device depend on. The versions are those of the runtime and of everything below it. `target`:
/// the built-in code that is used, `profile`: the device, for which code is compiled at run time where there is none.
pub(super) fn identity(
    info: &DeviceInfo,
    options: &HipOptions,
    target: Option<&str>,
    profile: &Profile,
) -> Identity {
    let mut all = vec![("driver".to_string(), "hip".to_string())];
    let mut add = |name: &str, value: String| all.push((name.into(), value));
    add("device", info.name.clone());
    add("provider", info.driver.clone());
    add("uuid", info.uuid.clone().unwrap_or_default());
    let feature = |name: &str| info.features.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone());
    add("target", feature("target").unwrap_or_default());
    add("PCI", feature("PCI").unwrap_or_default());
    // How the library was found depends on what the process loaded before.
    let counts = |name: &str| !["diptych", "library found"].contains(&name);
    for (name, version) in info.versions.iter().filter(|(name, _)| counts(name)) {
        add(name, version.clone());
    }
    add("release of the kernel", options.root().line("/proc/sys/kernel/osrelease").unwrap_or_default());
    add("code", format!("{} {}", hip_kernels::digest(), target.unwrap_or("none")));
    // Candidates are compared with it.
    let of_code = target.and_then(Target::parse).and_then(|target| Profile::of(&target));
    add("tuning table", digest_of(&Tuning::table(of_code.as_ref().unwrap_or(profile))));
    for (name, value) in options.environment.variables().iter().chain(options.environment.emulated()) {
        add(name, value.clone());
    }
    Identity(all)
}

/// Returns the use of graphs that routes mean.
pub(super) fn graphs(used: Used<Route>) -> Graphs {
    match (used.has(Route::Graphs), used.has(Route::GraphBranches)) {
        (false, _) => Graphs::Off,
        (true, false) => Graphs::Auto,
        (true, true) => Graphs::On,
    }
}

/// Notes the chosen routes and candidates in the profile, by which kernels are chosen, and in the facts that advice depends on.
pub(super) fn apply(
    (used, candidates): (Used<Route>, Chosen),
    options: &HipOptions,
    profile: &mut Profile,
    situation: &mut Situation,
) {
    let unit = profile.matrix;
    let unit_of = |route| if used.has(route) { unit } else { Matrix::None };
    profile.matrix = unit_of(Route::MatrixProducts);
    profile.attention_matrix = unit_of(Route::MatrixAttention);
    profile.candidates = candidates;
    let graphs = graphs(used);
    situation.dma_copies = !used.has(Route::KernelCopies);
    situation.graphs = graphs != Graphs::Off || options.graphs == Graphs::On;
    situation.branches = graphs == Graphs::On;
}

/// Returns the matrix units that kernels can use. Built-in code uses those of the processor that it was compiled for:
/// PTX for an earlier one has no instructions for them. Code that is compiled at run time uses those of the device.
pub(super) fn matrix_units(device: &Profile, code: Option<&str>) -> Matrix {
    profile_of_code(code).map_or(device.matrix, |code| code.matrix)
}

/// Returns the profile of the target of the chosen code.
pub(super) fn profile_of_code(code: Option<&str>) -> Option<Profile> {
    code.and_then(Target::parse).and_then(|code| Profile::of(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrix_units_are_those_of_the_code() {
        let units =
            |device: &str, code| matrix_units(&Profile::of(&Target::parse(device).unwrap()).unwrap(), code);
        assert_eq!(units("sm_90", Some("sm_80")), Matrix::Tensor);
        assert_eq!(units("sm_90", Some("sm_70")), Matrix::None);
        assert_eq!(units("gfx1100", Some("gfx1100")), Matrix::Wmma);
        // Compiled at run time, for the device itself.
        assert_eq!(units("gfx1201", None), Matrix::WmmaGfx12);
    }
}
