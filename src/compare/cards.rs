//! Detection of backends of a report that drive the same card, and of those that do not.

use super::report::{BackendReport, Report};
use crate::backends::{Pairing, View};
use std::collections::BTreeSet;

/// Returns a line for each card that several backends drive, and for each pair of backends known to drive two
/// cards: a difference between the pair's results need not come from a driver.
pub(super) fn remarks(report: &Report) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    let backends: Vec<&BackendReport> =
        report.backends.iter().filter(|b| !b.device.is_empty() && b.variant.is_none()).collect();
    // PCI addresses are only comparable within one machine.
    for run in backends.chunk_by(|a, b| a.run_id == b.run_id) {
        let views: Vec<View> = run.iter().map(|b| b.view()).collect();
        for (at, view) in views.iter().enumerate() {
            let is_same = |other: &&View| matches!(Pairing::of(other, view), Pairing::Same(_));
            if views[..at].iter().any(|other| is_same(&other)) {
                continue;
            }
            let others: Vec<&str> =
                views[at + 1..].iter().filter(is_same).map(|v| v.backend.as_str()).collect();
            if !others.is_empty() {
                lines.insert(format!("one card: {}, {} ({})", view.backend, others.join(", "), view.name));
            }
            for other in views[at + 1..].iter().filter(|other| view.is_card() && other.is_card()) {
                if let Pairing::Different(why) = Pairing::of(view, other) {
                    lines.insert(format!(
                        "two cards: {why}; a difference between them may come from the cards, not the drivers"
                    ));
                }
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend(name: &str, run_id: &str, pci: &str) -> BackendReport {
        BackendReport {
            run_id: run_id.into(),
            name: name.into(),
            device: "a card".into(),
            features: vec![("PCI".into(), pci.into())],
            ..BackendReport::default()
        }
    }

    fn lines(backends: Vec<BackendReport>) -> Vec<String> {
        let empty = Report::new(&super::super::options::CompareOptions::default());
        remarks(&Report { backends, ..empty }).into_iter().collect()
    }

    #[test]
    fn two_cards_are_not_called_one() {
        let vulkan = backend("vulkan:0", "r", "0000:43:00");
        let wanted = "one card: vulkan:0, hip:1 (a card)";
        assert_eq!(lines(vec![vulkan.clone(), backend("hip:1", "r", "0000:43:00")]), [wanted]);
        let two = lines(vec![vulkan.clone(), backend("hip:0", "r", "0000:03:00")]);
        let wanted = "two cards: vulkan:0 is at PCI address 0000:43:00, hip:0 at 0000:03:00; \
                      a difference between them may come from the cards, not the drivers";
        assert_eq!(two, [wanted]);
        assert!(lines(vec![vulkan.clone(), backend("hip:0", "another", "0000:43:00")]).is_empty());
        // An emulated card next to a real one, and a backend that was never opened, give no warning.
        let absent = BackendReport { device: String::new(), ..backend("hip:0", "r", "0000:03:00") };
        assert!(lines(vec![vulkan, backend("hip-virtual:gfx906", "r", ""), absent]).is_empty());
    }
}
