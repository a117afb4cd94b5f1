//! `auto`: the fastest of the backends that work on this machine, by measurement, with the reason.

mod cache;
mod marks;
mod pair;
mod reason;
mod trial;

use super::cache_folder;
use super::{BackendName, OpenOptions, View, open_named};
use cache::StoredChoice;
use ggml_core::backend::Backend;
use ggml_core::{Error, Missing, Phase, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use trial::{Failure, Machine, ThisMachine};

/// Time budget for measuring all backends together.
const MEASURE_BUDGET: Duration = Duration::from_secs(2);

/// Gain in prompts from which on two drivers of a card are used instead of the one that is faster in decode steps: each
/// driver costs time when it is opened, and some memory.
const PAIR_GAIN: f64 = 1.1;

/// Seconds after which backends that failed are tried again.
const RETRY_S: u64 = 3600;

/// Result of a backend that `auto` tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// The name that opens it.
    pub backend: String,
    /// Name of its device; empty if none was found.
    pub device: String,
    /// Seconds of a decode step; `None` if the backend does not work or was not measured.
    pub step_s: Option<f64>,
    /// Seconds of a prompt of 128 tokens through the same weights.
    #[serde(default)]
    pub prompt_s: Option<f64>,
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

impl Choice {
    /// Returns the reason without the reasons against the others, which are only named.
    pub fn sentence(&self) -> String {
        reason::sentence(&self.tried, &self.backend)
    }
}

/// Selects the fastest backend that works on this machine. It measures for two seconds and stores the choice
/// in the file `auto.json` of the user's cache folder. It measures again when a driver, a library, the
/// kernel, a card or the environment has changed, and an hour after a backend failed that has a device.
///
/// Backends are tried in child processes if the program has called
/// [`compare::child_entry`](crate::compare::child_entry), otherwise in this process. A backend that ends this
/// process is skipped when the program is started again.
///
/// # Errors
/// None at present: if no backend works, the choice is `cpu`, and its reason lists the failures.
pub fn choose(options: &OpenOptions) -> Result<Choice> {
    let file = cache_folder().map(|folder| folder.join("auto.json"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    choose_with(&marks::marks(options), file.as_deref(), now, &mut ThisMachine { options })
}

/// Opens the backend that [`choose`] selected. If it does not open, the next fastest is tried, and the reason
/// records it. `opening` gets the name of each before it is opened.
///
/// # Errors
/// The first backend's error, if none opens; [`Error::Unavailable`] if none worked.
pub(crate) fn open_chosen(
    options: &OpenOptions,
    opening: &mut dyn FnMut(&str),
) -> Result<(Arc<dyn Backend>, Choice)> {
    let mut choice = choose(options)?;
    // A pair whose drivers share no memory now is slower than the next one.
    let options = &OpenOptions { both_drivers: true, ..options.clone() };
    let mut first = None;
    let names: Vec<String> =
        choice.tried.iter().filter(|t| t.step_s.is_some()).map(|t| t.backend.clone()).collect();
    for name in names {
        opening(&name);
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
    let (backend, choice) = open_chosen(options, &mut |_| {})?;
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

/// Returns the stored choice, or measures and stores one. `now`: seconds since 1970.
fn choose_with(
    marks: &[(String, String)],
    file: Option<&Path>,
    now: u64,
    machine: &mut dyn Machine,
) -> Result<Choice> {
    let stored = file.and_then(StoredChoice::read);
    let changed = stored.as_ref().and_then(|stored| {
        // A clock that was set back does not make a failure last.
        let waits = |at: u64| (now..=now.saturating_add(RETRY_S)).contains(&at);
        let expired = stored.retry_at.is_some_and(|at| !waits(at));
        let expired = expired.then(|| "a backend had failed".to_string());
        marks::first_change(&stored.marks, marks).or(expired)
    });
    if let (Some(stored), None) = (stored, &changed) {
        return Ok(stored.choice);
    }
    let (mut choice, failures) = measured(machine);
    if let Some(what) = changed {
        choice.reason = format!("{} (measured again: {what})", choice.reason);
    }
    let retry_at = (!failures.is_empty()).then(|| now.saturating_add(RETRY_S));
    let stored = StoredChoice { marks: marks.to_vec(), choice, retry_at };
    let is_busy = failures.iter().any(|failure| matches!(failure, Failure::Busy(_)));
    if let Some(file) = file.filter(|_| !is_busy) {
        stored.write(file);
    }
    Ok(stored.choice)
}

/// Tries all backends that have a device. Returns the choice, and the failures.
fn measured(machine: &mut dyn Machine) -> (Choice, Vec<Failure>) {
    let list = machine.devices();
    let absent = list.absent.iter().map(|(driver, why)| Tried {
        backend: driver.clone(),
        device: String::new(),
        step_s: None,
        prompt_s: None,
        why_not: Some(why.clone()),
    });
    let pairs = list.devices.iter().filter_map(|device| pair::names(&device.views)).collect::<Vec<_>>();
    let views = list.devices.into_iter().flat_map(|device| device.views);
    let (processors, cards): (Vec<View>, Vec<View>) = views.partition(|view| view.is_processor);
    let left_out = processors.into_iter().map(|view| Tried {
        backend: view.backend,
        device: view.name,
        step_s: None,
        prompt_s: None,
        why_not: Some("it computes on the host processor, like cpu".into()),
    });
    let cpu = View { backend: "cpu".into(), name: "the processor".into(), ..View::default() };
    let (mut tried, mut failures): (Vec<Tried>, Vec<Failure>) = Default::default();
    let budget = MEASURE_BUDGET / (cards.len() as u32 + 1);
    for view in cards.into_iter().chain([cpu]) {
        let name = view.backend.parse::<BackendName>();
        let speed = match name {
            Ok(name) => machine.speed(&name, budget),
            Err(error) => Err(Failure::Failed(error.to_string())),
        };
        let why_not = speed.as_ref().err().map(|failure| failure.reason().to_string());
        let speed = speed.map_err(|failure| failures.push(failure)).ok();
        let (step_s, prompt_s) = (speed.map(|speed| speed.step_s), speed.map(|speed| speed.prompt_s));
        tried.push(Tried { backend: view.backend, device: view.name, step_s, prompt_s, why_not });
    }
    // A pair is as fast as the faster driver of each phase; it goes before both of them.
    let worth = pairs.iter().filter_map(|names| pair::worth(names, &tried)).collect::<Vec<_>>();
    for (name, candidate) in worth {
        match machine.speed(&name, budget) {
            Ok(_) => tried.insert(0, candidate),
            Err(failure) => {
                let why_not = Some(failure.reason().to_string());
                tried.push(Tried { step_s: None, prompt_s: None, why_not, ..candidate });
                failures.push(failure);
            }
        }
    }
    let seconds = |t: &Tried| t.step_s.unwrap_or(f64::INFINITY);
    tried.sort_by(|a, b| seconds(a).total_cmp(&seconds(b)));
    tried.extend(left_out.chain(absent));
    let reason = reason::reason(&tried);
    let works = tried.first().filter(|t| t.step_s.is_some());
    (Choice { backend: works.map_or("cpu".into(), |t| t.backend.clone()), reason, tried }, failures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::DeviceList;
    use crate::backends::measure::Speed;

    /// Devices and times of a simulated machine.
    struct SimulatedMachine {
        views: Vec<(&'static str, Result<f64, Failure>)>,
        /// Seconds of a prompt in seconds of a step, where they are not 10.
        prompts: Vec<(&'static str, f64)>,
        measurements: usize,
    }

    impl Machine for SimulatedMachine {
        fn devices(&mut self) -> DeviceList {
            let mut list = DeviceList::default();
            for (name, _) in self.views.iter().filter(|(name, _)| *name != "cpu" && !name.contains('+')) {
                let is_processor = *name == "vulkan:9";
                list.add(View {
                    backend: (*name).into(),
                    name: "a card".into(),
                    pci: (!is_processor).then(|| "0000:43:00".into()),
                    is_processor,
                    ..View::default()
                });
            }
            list.absent.push(("hip-nvidia".into(), "no libcuda".into()));
            list
        }

        fn speed(&mut self, name: &BackendName, budget: Duration) -> Result<Speed, Failure> {
            assert!(budget <= MEASURE_BUDGET);
            self.measurements += 1;
            let name = name.to_string();
            let found = self.views.iter().find(|(n, _)| *n == name).expect("a listed backend");
            let steps = self.prompts.iter().find(|(n, _)| *n == name).map_or(10.0, |(_, steps)| *steps);
            found.1.clone().map(|step_s| Speed { step_s, prompt_s: steps * step_s })
        }
    }

    fn marks(kernel: &str) -> Vec<(String, String)> {
        vec![("kernel".into(), kernel.into()), ("library".into(), "a".into())]
    }

    #[test]
    fn the_fastest_that_works_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("diptych/auto.json");
        let crash = Err(Failure::Failed("crashed in phase enumerate: died of SIGSEGV".into()));
        let views =
            vec![("hip:0", crash), ("vulkan:0", Ok(0.0015)), ("cpu", Ok(0.004)), ("vulkan:9", Ok(1e-9))];
        let mut machine = SimulatedMachine { views, prompts: Vec::new(), measurements: 0 };
        let choose = |kernel, machine: &mut SimulatedMachine| {
            choose_with(&marks(kernel), Some(&file), 1_000, machine).unwrap()
        };
        let choice = choose("6.8", &mut machine);
        assert_eq!(choice.backend, "vulkan:0");
        let speeds = "vulkan:0 (a card): 1.50 ms a step and 15.00 ms a prompt of 128 tokens, the fastest of 2 (cpu 4.00 ms \
                      and 40.00 ms)";
        let expected = "hip:0 not used: crashed in \
                        phase enumerate: died of SIGSEGV; vulkan:9 not used: it computes on the host processor, like cpu; \
                        hip-nvidia not used: no libcuda";
        assert_eq!(choice.reason, format!("{speeds}; {expected}"));
        let unused = "not used: hip:0, vulkan:9, hip-nvidia (probe says why)";
        assert_eq!(choice.sentence(), format!("{speeds}; {unused}"));
        let other = Choice { backend: "cpu".into(), ..choice.clone() };
        assert!(
            other.sentence().starts_with("cpu, since vulkan:0 does not open now"),
            "{}",
            other.sentence()
        );
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
        let mut cpu_only =
            SimulatedMachine { views: vec![("cpu", Ok(0.1))], prompts: Vec::new(), measurements: 0 };
        let choice = choose_with(&marks("x"), None, 1_000, &mut cpu_only).unwrap();
        assert!(
            choice.reason.starts_with("cpu (the processor) is the only backend that works here; "),
            "{}",
            choice.reason
        );
    }

    /// Each driver of a card runs the phase in which it is faster, if that gains enough and they share memory.
    #[test]
    fn two_drivers_of_a_card() {
        let slow = |prompts: f64, shared: Result<f64, Failure>| {
            let pair = "vulkan:0+hip:0";
            let views =
                vec![("vulkan:0", Ok(0.001)), ("hip:0", Ok(0.0015)), (pair, shared), ("cpu", Ok(0.01))];
            let prompts = vec![("vulkan:0", prompts), ("hip:0", 10.0)];
            let mut machine = SimulatedMachine { views, prompts, measurements: 0 };
            (choose_with(&marks("x"), None, 1_000, &mut machine).unwrap(), machine.measurements)
        };
        // A prompt takes 15 ms under HIP.
        let (choice, measurements) = slow(20.0, Ok(0.001));
        assert_eq!((choice.backend.as_str(), measurements), ("vulkan:0+hip:0", 4));
        assert_eq!(
            choice.reason.split(';').next().unwrap(),
            "vulkan:0+hip:0 (a card): 1.00 ms a step and 15.00 ms a prompt of 128 tokens, the fastest of 4 (vulkan:0 1.00 ms \
             and 20.00 ms, hip:0 1.50 ms and 15.00 ms, cpu 10.00 ms and 100.00 ms)"
        );
        assert_eq!((choice.tried[0].step_s, choice.tried[0].prompt_s), (Some(0.001), Some(0.015)));
        let (choice, measurements) = slow(16.0, Ok(0.001));
        assert_eq!((choice.backend.as_str(), measurements), ("vulkan:0", 3), "too little to gain");
        let (choice, _) = slow(20.0, Err(Failure::Failed("it does not share".into())));
        assert_eq!(choice.backend, "vulkan:0");
        assert!(choice.reason.contains("vulkan:0+hip:0 not used: it does not share"), "{}", choice.reason);
    }

    /// A link in the place of the stored choice is replaced: what it names is neither read nor written.
    #[cfg(unix)]
    #[test]
    fn a_link_is_no_stored_choice() {
        let dir = tempfile::tempdir().unwrap();
        let (file, precious) = (dir.path().join("diptych/auto.json"), dir.path().join("precious"));
        let mut machine =
            SimulatedMachine { views: vec![("cpu", Ok(0.004))], prompts: Vec::new(), measurements: 0 };
        let choose = |machine: &mut SimulatedMachine| {
            choose_with(&marks("6.8"), Some(&file), 1_000, machine).unwrap();
            machine.measurements
        };
        assert_eq!((choose(&mut machine), choose(&mut machine)), (1, 1));
        std::fs::copy(&file, &precious).unwrap();
        let before = std::fs::read(&precious).unwrap();
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink(&precious, &file).unwrap();
        assert_eq!(choose(&mut machine), 2, "it is not read");
        assert_eq!(std::fs::read(&precious).unwrap(), before);
        assert!(!std::fs::symlink_metadata(&file).unwrap().file_type().is_symlink());
    }

    /// A failure is tried again after an hour, or if the clock was set back; a backend that another process
    /// is trying decides nothing. A choice without failures stays.
    #[test]
    fn failures_do_not_last() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("auto.json");
        let full = Err(Failure::Failed("out of memory".into()));
        let busy = Err(Failure::Busy("another process is trying it".into()));
        let mut machine = SimulatedMachine {
            views: vec![("vulkan:0", full), ("cpu", Ok(0.004))],
            prompts: Vec::new(),
            measurements: 0,
        };
        let mut choose = |now: u64, view: Option<Result<f64, Failure>>| {
            if let Some(view) = view {
                machine.views[0].1 = view;
            }
            let choice = choose_with(&marks("6.8"), Some(&file), now, &mut machine).unwrap();
            (choice.backend, machine.measurements)
        };
        let tries = [(10_000, None, "cpu", 2), (13_600, None, "cpu", 2), (9_999, None, "cpu", 4)];
        for (now, view, backend, measurements) in tries {
            assert_eq!(choose(now, view), (backend.to_string(), measurements), "{now}");
        }
        assert_eq!(choose(20_000, Some(busy)), ("cpu".into(), 6));
        assert_eq!(choose(20_000, Some(Ok(0.001))), ("vulkan:0".into(), 8));
        assert_eq!(choose(90_000_000, None), ("vulkan:0".into(), 8));
    }
}
