//! Verdicts that a later failure takes back.

use super::{Identity, Record, RouteUse, State, Verdict};
use crate::error::{Error, Phase};
use std::path::Path;

/// Takes back the verdicts on routes that a step took in which the device was lost or hung, so that the next process does
/// without them. `routes` are those of the device, `identity` is what verdicts on it depend on. `kernels` returns the kernels of the step with all routes of the device, or with one left out; `None` if
/// the step has no kernels then. Returns the names of the routes. If one of them builds on another, the other keeps its
/// verdict: should the step fail again, it is next.
///
/// A failure in which nobody knows the step takes nothing back, and neither do errors of other kinds.
pub fn demote(
    folder: Option<&Path>,
    (identity, routes): (&Identity, &[RouteUse]),
    error: &Error,
    kernels: &dyn Fn(Option<&str>) -> Option<Vec<String>>,
) -> Vec<String> {
    let state = match error {
        Error::DeviceLost { node: Some(_), .. } => State::Crashed,
        // A runtime of HIP says so of kernels that access what they must not.
        Error::Driver { node: Some(_), phase: Phase::FirstCompute | Phase::Compute, .. } => State::Crashed,
        Error::Timeout { node: Some(_), .. } => State::Hung,
        _ => return Vec::new(),
    };
    let all = kernels(None);
    let used = routes.iter().filter(|route| route.used);
    let taken: Vec<&RouteUse> = used.filter(|route| kernels(Some(&route.name)) != all).collect();
    let is_base = |route: &RouteUse| taken.iter().any(|other| other.on_top_of.as_ref() == Some(&route.name));
    let blamed: Vec<String> =
        taken.iter().filter(|route| !is_base(route)).map(|route| route.name.clone()).collect();
    for route in &blamed {
        let verdict = Verdict::new(route, state, format!("outside of the checks: {error}"));
        let written = folder.map(|folder| Record::put(folder, identity, verdict));
        if let Some(Err(error)) = written {
            tracing::warn!(route, %error, "its verdict was not taken back");
        }
    }
    blamed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn route(name: &str, used: bool, on_top_of: Option<&str>) -> RouteUse {
        let (about, why) = (String::new(), String::new());
        let on_top_of = on_top_of.map(String::from);
        RouteUse { name: name.into(), about, used, why, verdict: None, lacks: None, on_top_of }
    }

    fn lost(node: Option<&str>) -> Error {
        let (backend, reason) = ("hip:0".to_string(), "reset".to_string());
        Error::DeviceLost { backend, phase: Phase::Compute, node: node.map(String::from), reason }
    }

    /// Only routes that the step took are blamed, the one on top first, and the file says so.
    #[test]
    fn a_loss_takes_verdicts_back() {
        let dir = tempfile::tempdir().unwrap();
        let identity = Identity(vec![("driver".into(), "hip".into())]);
        let mut routes = vec![
            route("hip.units", true, None),
            route("hip.shared", true, Some("hip.units")),
            route("hip.dots", true, None),
            route("hip.unused", false, None),
        ];
        let kernels = |left_out: Option<&str>| {
            Some(match left_out {
                Some("hip.units" | "hip.unused") => vec!["plain".to_string()],
                Some("hip.shared") => vec!["units".into()],
                _ => vec!["units, shared".into()],
            })
        };
        let states = || -> Vec<(String, State)> {
            let (record, _) = Record::read(dir.path(), &identity);
            record.verdicts.into_iter().map(|verdict| (verdict.route, verdict.state)).collect()
        };
        assert!(demote(Some(dir.path()), (&identity, &routes), &lost(None), &kernels).is_empty());
        assert!(states().is_empty());
        let blamed = demote(Some(dir.path()), (&identity, &routes), &lost(Some("ffn_up-3")), &kernels);
        assert_eq!(blamed, ["hip.shared"]);
        assert_eq!(states(), [("hip.shared".to_string(), State::Crashed)]);
        routes[1].used = false;
        let (backend, node) = ("hip:0".into(), Some("ffn_up-3".into()));
        let hung = Error::Timeout { backend, phase: Phase::Compute, node, after: Duration::from_secs(1) };
        assert_eq!(demote(Some(dir.path()), (&identity, &routes), &hung, &kernels), ["hip.units"]);
        assert_eq!(demote(None, (&identity, &routes), &hung, &kernels), ["hip.units"]);
        let (record, _) = Record::read(dir.path(), &identity);
        let of_units = record.verdicts.iter().find(|verdict| verdict.route == "hip.units").unwrap();
        assert!(of_units.state == State::Hung && of_units.evidence.contains("ffn_up-3"), "{of_units:?}");
    }
}
