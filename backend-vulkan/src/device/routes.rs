//! The routes of a device: what each needs, which are used, and what verdicts on them depend on.

use super::candidates::{CANDIDATES, fits};
use super::profile::{NO_SHAPES, Profile, lacks};
use super::tuning::Tuning;
use crate::arch::{ArchClass, Caps};
use crate::environment::environment;
use crate::options::VulkanOptions;
use crate::raw::physical::Facts;
use crate::route::Route;
use ggml_core::Result;
use ggml_core::environment::{VULKAN, is_recorded};
use ggml_core::files::Root;
use ggml_core::routes::{
    Able, Identity, Record, RouteUse, Routes, Table, Used, Verdict, cards, choose, choose_candidates,
    digest_of,
};

/// Variables of this project that change what a device computes.
const OWN: [&str; 5] = [
    "DIPTYCH_VIRTUAL_CHECKS",
    "DIPTYCH_VIRTUAL_FAULTS",
    "DIPTYCH_VIRTUAL_ORDER",
    "DIPTYCH_VIRTUAL_VULKAN_FAULTS",
    "DIPTYCH_VULKAN_ARCH",
];

/// The user's choice of routes, and the verdicts on a device.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    routes: Routes,
    verdicts: Vec<Verdict>,
    /// Identity that the verdicts depend on.
    pub(crate) identity: Identity,
    /// True if the driver lists matrix units, which says nothing about their shapes.
    may_have_matrices: bool,
    class: ArchClass,
}

impl Choice {
    /// Reads the verdicts on a device, and the user's choice.
    ///
    /// # Errors
    /// [`InvalidArgument`](ggml_core::Error::InvalidArgument) for an unknown route.
    pub(crate) fn read(facts: &Facts, options: &VulkanOptions) -> Result<Choice> {
        let routes = options.chosen_routes()?;
        routes.check::<Route>(CANDIDATES.iter().map(|candidate| candidate.row.name))?;
        let identity = identity(facts);
        let verdicts = Record::verdicts(options.routes_dir.as_deref(), &identity, &facts.name);
        let may_have_matrices = facts.support.features.matrices;
        Ok(Choice { routes, verdicts, identity, may_have_matrices, class: facts.caps.arch })
    }

    /// True if matrix units are used should the device have a suitable shape of matrices: only then is the driver asked
    /// for its shapes. (AMD's driver for Windows crashes in that query on some processors: AMDVLK issue 422.)
    pub(crate) fn wants_matrices(&self) -> bool {
        let able = |route| match route {
            Route::MatrixProducts | Route::MatrixAttention => able_of_class(self.class, route),
            _ => Able::No(String::new()),
        };
        let (used, _) = choose(&self.routes, able, &self.verdicts);
        self.may_have_matrices && used != Used::none()
    }

    /// Returns the profile of a device, and the use of each route and of each candidate.
    pub(crate) fn decide(&self, caps: Caps) -> (Profile, [Vec<RouteUse>; 2]) {
        let all = Profile::new(caps);
        let units =
            |route| matches!(route, Route::MatrixProducts | Route::MatrixAttention | Route::MatrixColumns);
        let able = |route| match lacks(&all, route) {
            // They were not asked for.
            Some(NO_SHAPES) if self.may_have_matrices && all.caps.matrices.is_empty() => {
                able_of_class(all.caps.arch, route)
            }
            Some(what) => Able::No(what.into()),
            None if units(route) && !all.caps.emulated_matrices => able_of_class(all.caps.arch, route),
            None => Able::Known,
        };
        let (used, mut uses) = choose(&self.routes, able, &self.verdicts);
        // A route that was wanted, but whose shapes turned out to be missing.
        let used = Used::those(|route| used.has(route) && lacks(&all, route).is_none());
        for (route, of_it) in Route::ALL.iter().zip(&mut uses).filter(|(route, _)| !used.has(**route)) {
            if let Some(what) = lacks(&all, *route).filter(|_| of_it.used) {
                (of_it.used, of_it.why) = (false, what.into());
            }
        }
        let profile = Profile { routes: used, ..all };
        let has = |name: &str| Route::ALL.iter().any(|route| used.has(*route) && route.row().name == name);
        let of_device = (|tuning: &Tuning| fits(&profile.caps, tuning), has);
        let (candidates, of_candidates) =
            choose_candidates((&profile.tuning, CANDIDATES), of_device, &self.routes, &self.verdicts);
        (profile.tuned(candidates), [uses, of_candidates])
    }
}

/// Returns whether a route on the matrix units of a class is known to work, by reports of such cards.
fn able_of_class(class: ArchClass, route: Route) -> Able {
    if cards::is_known("vulkan", class.name(), route.row().name) { Able::Known } else { Able::Unproven }
}

/// Returns what verdicts on a device depend on.
fn identity(facts: &Facts) -> Identity {
    let root = Root::default();
    let mut all = vec![("driver".to_string(), "vulkan".to_string())];
    let mut add = |name: &str, value: String| all.push((name.into(), value));
    add("device", facts.name.clone());
    add("uuid", super::uuid_text(&facts.uuid));
    add("pci", format!("{:04x}:{:04x}", facts.ids.0, facts.ids.1));
    add("vulkan driver", format!("{} {}", facts.driver_id.as_raw(), facts.driver));
    add("version", format!("{:#x} {}", facts.driver_version, facts.driver_info));
    // Mesa's identifier of the cache holds its build.
    add("build", super::uuid_text(&facts.cache_uuid));
    add("kernel", root.line("/proc/sys/kernel/osrelease").unwrap_or_default());
    for (name, version) in facts.pci.map_or(Vec::new(), |pci| firmware(&root, pci)) {
        add(&name, version);
    }
    add("class", facts.caps.arch.name().into());
    add("code", shaders::digest().into());
    // Candidates are compared with it.
    add("tuning table", digest_of(&Tuning::of(facts.caps.arch)));
    for (name, value) in &environment().overrides {
        if is_recorded(name, &[VULKAN, &OWN]) {
            add(name, value.clone());
        }
    }
    Identity(all)
}

/// Returns the versions of a card's firmware that compute kernels run under.
fn firmware(root: &Root, [domain, bus, device]: [u32; 3]) -> Vec<(String, String)> {
    let folder = format!("/sys/bus/pci/devices/{domain:04x}:{bus:02x}:{device:02x}.0/fw_version");
    let of = |name: &str| Some((name.to_string(), root.line(format!("{folder}/{name}"))?));
    ["mec_fw_version", "mes_fw_version", "rlc_fw_version", "vbios_version"]
        .into_iter()
        .filter_map(of)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::{MatrixShape, MatrixTypes, SubgroupOps};
    use ggml_core::routes::State;

    fn caps(class: ArchClass) -> Caps {
        Caps {
            fp16: true,
            subgroup: SubgroupOps { arithmetic: true, shuffle: true, ballot: true },
            int_dot: true,
            int_dot_signed: true,
            shared_views: true,
            matrices: vec![MatrixShape { m: 16, n: 16, k: 16, types: MatrixTypes::F16F32 }],
            ..Caps::imagined(class, 64)
        }
    }

    fn choice(text: &str, verdicts: &[(Route, State)]) -> Choice {
        let of = |(route, state): &(Route, State)| Verdict::new(route.row().name, *state, "");
        let verdicts = verdicts.iter().map(of).collect();
        let (routes, identity) = (text.parse().unwrap(), Identity::default());
        Choice { routes, verdicts, identity, may_have_matrices: true, class: ArchClass::Other }
    }

    #[test]
    fn units_of_amd_need_a_verdict() {
        let units = [Route::MatrixProducts, Route::MatrixAttention];
        let used = |class, text: &str, verdicts: &[(Route, State)]| {
            let (profile, [uses, _]) = choice(text, verdicts).decide(caps(class));
            assert_eq!(
                uses.iter().filter(|u| u.used).count(),
                Route::ALL.iter().filter(|r| profile.routes.has(**r)).count()
            );
            units.map(|route| profile.routes.has(route))
        };
        let amd = ArchClass::AmdRdna3;
        assert_eq!(used(amd, "", &[]), [false; 2]);
        assert_eq!(used(ArchClass::Nvidia, "", &[]), [true; 2]);
        assert_eq!(used(amd, "", &[(Route::MatrixProducts, State::Verified)]), [true, false]);
        assert_eq!(used(amd, "+vulkan.matrix-attention", &[]), [false, true]);
        assert_eq!(used(amd, "all", &[]), [true; 2]);
        assert_eq!(used(ArchClass::Nvidia, "", &[(Route::MatrixProducts, State::Hung)]), [false, true]);
        assert_eq!(used(ArchClass::Cpu, "all", &[]), [false; 2], "its class has no tiles for them");
        let (profile, _) = choice("plain", &[]).decide(caps(amd));
        assert_eq!(profile.routes, Used::none());
    }

    /// Shapes that were not asked for are no reason against a route; shapes that do not suit are.
    #[test]
    fn a_wanted_route_without_its_shapes_is_not_used() {
        let without = Caps { matrices: Vec::new(), ..caps(ArchClass::AmdRdna3) };
        let (_, [uses, _]) = choice("", &[]).decide(without.clone());
        assert_eq!((uses[0].used, &uses[0].lacks), (false, &None));
        assert_eq!(uses[0].why, "not verified on this device");
        // What else is missing is said, whether the shapes are known or not.
        let (_, [uses, _]) = choice("", &[]).decide(Caps { fp16: false, ..without.clone() });
        assert_eq!(uses[0].lacks.as_deref(), Some("shaders cannot compute in F16"));
        // Shared tiles are part of the units: a device that could have these could have them too.
        let (_, [uses, _]) = choice("", &[]).decide(Caps { matrices: Vec::new(), ..caps(ArchClass::Nvidia) });
        assert_eq!((uses[3].name.as_str(), &uses[3].lacks), ("vulkan.shared-tiles", &None));
        let (profile, [uses, _]) = choice("all", &[]).decide(without);
        assert!(!uses[0].used && !profile.routes.has(Route::MatrixProducts));
        assert_eq!(uses[0].why, "the device has no suitable cooperative matrices");
    }
}
