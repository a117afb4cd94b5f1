//! Remarks on the routes of the cards: which were used, and by which verdict.

use super::report::Report;
use crate::backend_name::BackendName;
use crate::isolate::record::BackendReport;
use ggml_core::routes::RouteUse;
use std::collections::BTreeSet;

/// Returns a sentence for each backend of a card. Emulated cards and processors have one only if there are verdicts.
pub(super) fn remarks(report: &Report) -> Vec<String> {
    of_backends(&report.backends)
}

fn of_backends(backends: &[BackendReport]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let plain = backends.iter().filter(|backend| backend.variant.is_none());
    plain.filter(|backend| is_worth_it(backend) && seen.insert(&backend.name)).map(sentence).collect()
}

fn is_worth_it(backend: &BackendReport) -> bool {
    let is_emulated = backend.name.parse::<BackendName>().is_ok_and(|name| name.is_emulated());
    let is_processor = backend.features.contains(&("kind".into(), "cpu".into()));
    let has_verdict = backend.routes.iter().any(|route| route.verdict.is_some());
    has_verdict || !is_emulated && !is_processor && !backend.routes.is_empty()
}

fn sentence(backend: &BackendReport) -> String {
    let name =
        |route: &RouteUse| route.name.split_once('.').map_or(route.name.clone(), |(_, name)| name.into());
    let used: Vec<String> = backend
        .routes
        .iter()
        .filter(|route| route.used)
        .map(|route| match &route.verdict {
            Some(verdict) => format!("{} ({})", name(route), verdict.state.name()),
            None => name(route),
        })
        .collect();
    let left_out = backend.routes.iter().filter(|route| !route.used && route.lacks.is_none());
    let left_out: Vec<String> = left_out.map(|route| format!("{} ({})", name(route), route.why)).collect();
    let used = if used.is_empty() { "none".into() } else { used.join(", ") };
    let others =
        if left_out.is_empty() { String::new() } else { format!("; not used: {}", left_out.join(", ")) };
    format!("{}: fast ways used: {used}{others}", backend.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ggml_core::routes::{State, Verdict};

    #[test]
    fn routes_are_named_with_their_verdicts() {
        let route = |name: &str, used, why: &str, verdict: Option<State>| RouteUse {
            name: name.into(),
            about: String::new(),
            used,
            why: why.into(),
            verdict: verdict.map(|state| Verdict::new(name, state, "seen")),
            lacks: None,
            on_top_of: None,
        };
        let backend = BackendReport {
            name: "vulkan".into(),
            routes: vec![
                route("vulkan.matrix-products", true, "verified", Some(State::Verified)),
                route("vulkan.dot-tiles", true, "known", None),
                route("vulkan.matrix-attention", false, "hung: seen", Some(State::Hung)),
            ],
            ..BackendReport::default()
        };
        let emulated = BackendReport { name: "vulkan-virtual:navi31".into(), ..backend.clone() };
        let unverified =
            BackendReport { routes: vec![route("hip.graphs", true, "known", None)], ..emulated.clone() };
        let all = of_backends(&[backend.clone(), backend, emulated, unverified]);
        assert_eq!(all.len(), 2);
        let expected = "vulkan: fast ways used: matrix-products (verified), dot-tiles; not used: matrix-attention \
                        (hung: seen)";
        assert_eq!(all[0], expected);
    }
}
