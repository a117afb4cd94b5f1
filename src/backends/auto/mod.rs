//! `auto`: the fastest of the backends that work on this machine, by measurement, with the reason.

mod cache;
mod marks;
mod reason;
mod trial;

use super::{BackendName, OpenOptions, View, open_named};
use cache::StoredChoice;
use ggml_core::backend::Backend;
use ggml_core::{Error, Missing, Phase, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use trial::{Machine, ThisMachine};

/// Time budget for measuring all backends together.
const MEASURE_BUDGET: Duration = Duration::from_secs(2);

/// Result of a backend that `auto` tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// The name that opens it.
    pub backend: String,
    /// Name of its device; empty if none was found.
    pub device: String,
    /// Seconds of a decode step; `None` if the backend does not work or was not measured.
    pub step_s: Option<f64>,
    /// The reason it was not measured.
    pub why_not: Option<String>,
}

/// The backend that `auto` selected, with the reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// The name that opens it.
    pub backend: String,
    /// The reason, in a sentence.
    pub reason: String,
    /// All backends that were tried, the fastest first.
    pub tried: Vec<Tried>,
}

/// Selects the fastest backend that works on this machine. It measures for two seconds and stores the choice
/// in the file `auto.json` of the user's cache folder. It measures again when a driver, a library, the
/// kernel, a card or the environment has changed.
///
/// Backends are tried in child processes if the program has called
/// [`compare::child_entry`](crate::compare::child_entry), otherwise in this process. A backend that ends this
/// process is skipped when the program is started again.
///
/// # Errors
/// None at present: if no backend works, the choice is `cpu`, and its reason lists the failures.
pub fn choose(options: &OpenOptions) -> Result<Choice> {
    let file = cache::folder().map(|folder| folder.join("auto.json"));
    choose_with(&marks::marks(options), file.as_deref(), &mut ThisMachine { options })
}

/// Opens the backend that [`choose`] selected. If it does not open, the next fastest is tried, and the reason
/// records it.
///
/// # Errors
/// The first backend's error, if none opens; [`Error::Unavailable`] if none worked.
pub(crate) fn open_chosen(options: &OpenOptions) -> Result<(Arc<dyn Backend>, Choice)> {
    let mut choice = choose(options)?;
    let mut first = None;
    let names: Vec<String> =
        choice.tried.iter().filter(|t| t.step_s.is_some()).map(|t| t.backend.clone()).collect();
    for name in names {
        match open_named(&name.parse()?, options) {
            Ok(backend) => {
                choice.backend = name;
                return Ok((backend, choice));
            }
            Err(error) => {
                choice.reason = format!("{}; but {name} does not open now: {error}", choice.reason);
                first = first.or(Some(error));
            }
        }
    }
    Err(first.unwrap_or_else(|| none(&choice)))
}

/// Opens the chosen backend and logs the reason.
pub(super) fn open(options: &OpenOptions) -> Result<Arc<dyn Backend>> {
    let (backend, choice) = open_chosen(options)?;
    tracing::info!(target: "diptych::auto", backend = %choice.backend, "{}", choice.reason);
    Ok(backend)
}

fn none(choice: &Choice) -> Error {
    Error::Unavailable {
        backend: "auto".into(),
        phase: Phase::Enumerate,
        missing: Missing::Device,
        reason: choice.reason.clone(),
    }
}

fn choose_with(marks: &[(String, String)], file: Option<&Path>, machine: &mut dyn Machine) -> Result<Choice> {
    let stored = file.and_then(StoredChoice::read);
    let changed = stored.as_ref().and_then(|stored| marks::first_change(&stored.marks, marks));
    if let (Some(stored), None) = (stored, &changed) {
        return Ok(stored.choice);
    }
    let mut choice = measured(machine);
    if let Some(what) = changed {
        choice.reason = format!("{} (measured again: {what})", choice.reason);
    }
    let stored = StoredChoice { marks: marks.to_vec(), choice };
    if let Some(file) = file {
        stored.write(file);
    }
    Ok(stored.choice)
}

fn measured(machine: &mut dyn Machine) -> Choice {
    let list = machine.devices();
    let absent = list.absent.iter().map(|(driver, why)| Tried {
        backend: driver.clone(),
        device: String::new(),
        step_s: None,
        why_not: Some(why.clone()),
    });
    let views = list.devices.into_iter().flat_map(|device| device.views);
    let (processors, cards): (Vec<View>, Vec<View>) = views.partition(|view| view.is_processor);
    let left_out = processors.into_iter().map(|view| Tried {
        backend: view.backend,
        device: view.name,
        step_s: None,
        why_not: Some("it computes on the host processor, like cpu".into()),
    });
    let cpu = View { backend: "cpu".into(), name: "the processor".into(), ..View::default() };
    let mut tried: Vec<Tried> = Vec::new();
    let budget = MEASURE_BUDGET / (cards.len() as u32 + 1);
    for view in cards.into_iter().chain([cpu]) {
        let name = view.backend.parse::<BackendName>();
        let step = match name {
            Ok(name) => machine.step_seconds(&name, budget),
            Err(error) => Err(error.to_string()),
        };
        let (step_s, why_not) = step.map_or_else(|why| (None, Some(why)), |step| (Some(step), None));
        tried.push(Tried { backend: view.backend, device: view.name, step_s, why_not });
    }
    let seconds = |t: &Tried| t.step_s.unwrap_or(f64::INFINITY);
    tried.sort_by(|a, b| seconds(a).total_cmp(&seconds(b)));
    tried.extend(left_out.chain(absent));
    let reason = reason::reason(&tried);
    let works = tried.first().filter(|t| t.step_s.is_some());
    Choice { backend: works.map_or("cpu".into(), |t| t.backend.clone()), reason, tried }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::DeviceList;

    /// Devices and times of a simulated machine.
    struct SimulatedMachine {
        views: Vec<(&'static str, Result<f64, &'static str>)>,
        measurements: usize,
    }

    impl Machine for SimulatedMachine {
        fn devices(&mut self) -> DeviceList {
            let mut list = DeviceList::default();
            for (name, _) in self.views.iter().filter(|(name, _)| *name != "cpu") {
                let is_processor = *name == "vulkan:9";
                list.add(View {
                    backend: (*name).into(),
                    name: "a card".into(),
                    is_processor,
                    ..View::default()
                });
            }
            list.absent.push(("hip-nvidia".into(), "no libcuda".into()));
            list
        }

        fn step_seconds(&mut self, name: &BackendName, budget: Duration) -> Result<f64, String> {
            assert!(budget <= MEASURE_BUDGET);
            self.measurements += 1;
            let found = self.views.iter().find(|(n, _)| *n == name.to_string()).expect("a listed backend");
            found.1.map_err(String::from)
        }
    }

    fn marks(kernel: &str) -> Vec<(String, String)> {
        vec![("kernel".into(), kernel.into()), ("library".into(), "a".into())]
    }

    #[test]
    fn the_fastest_that_works_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("diptych/auto.json");
        let crash = Err("crashed in phase enumerate: died of SIGSEGV");
        let views =
            vec![("hip:0", crash), ("vulkan:0", Ok(0.0015)), ("cpu", Ok(0.004)), ("vulkan:9", Ok(1e-9))];
        let mut machine = SimulatedMachine { views, measurements: 0 };
        let choose = |kernel, machine: &mut SimulatedMachine| {
            choose_with(&marks(kernel), Some(&file), machine).unwrap()
        };
        let choice = choose("6.8", &mut machine);
        assert_eq!(choice.backend, "vulkan:0");
        let expected = "vulkan:0 (a card): 1.50 ms a step, the fastest of 2 (cpu 4.00 ms); hip:0 not used: crashed in \
                        phase enumerate: died of SIGSEGV; vulkan:9 not used: it computes on the host processor, like cpu; \
                        hip-nvidia not used: no libcuda";
        assert_eq!(choice.reason, expected);
        assert_eq!(machine.measurements, 3);
        // The choice is reused until a mark changes.
        assert_eq!(choose("6.8", &mut machine), choice);
        assert_eq!(machine.measurements, 3);
        machine.views[0].1 = Ok(0.001);
        let changed = choose("6.9", &mut machine);
        assert_eq!((changed.backend.as_str(), machine.measurements), ("hip:0", 6));
        assert!(changed.reason.ends_with("(measured again: kernel has changed)"), "{}", changed.reason);
        // A broken file counts as missing.
        std::fs::write(&file, "{").unwrap();
        assert!(!choose("6.9", &mut machine).reason.contains("measured again"));
        let mut cpu_only = SimulatedMachine { views: vec![("cpu", Ok(0.1))], measurements: 0 };
        let choice = choose_with(&marks("x"), None, &mut cpu_only).unwrap();
        assert!(
            choice.reason.starts_with("cpu (the processor) is the only backend that works here; "),
            "{}",
            choice.reason
        );
    }
}
