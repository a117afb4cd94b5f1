//! `auto`: the fastest of the backends that work on this machine, by measurement, with the reason.

use super::files::{self, Root};
use super::{BackendName, OpenOptions, View, devices, measure, open_named};
use ggml_core::backend::Backend;
use ggml_core::{Error, Missing, Phase, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Time budget for measuring all backends together.
const MEASURING: Duration = Duration::from_secs(2);

/// Time limit of one phase of a backend's trial.
#[cfg(feature = "compare")]
const PATIENCE: Duration = Duration::from_secs(30);

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

/// Contents of the file that stores the choice.
#[derive(Serialize, Deserialize)]
struct Kept {
    marks: Vec<(String, String)>,
    choice: Choice,
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
    let file = folder().map(|folder| folder.join("auto.json"));
    choose_with(&marks(options), file.as_deref(), &mut Prober { options })
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

/// Returns the user's cache folder that the Vulkan driver uses; `None` without that driver.
fn folder() -> Option<PathBuf> {
    #[cfg(feature = "vulkan")]
    return super::drivers::cache_folder();
    #[cfg(not(feature = "vulkan"))]
    None
}

/// Lists and measures backends; tests replace it.
trait Trier {
    fn devices(&mut self) -> devices::DeviceList;
    fn step(&mut self, name: &BackendName, budget: Duration) -> Result<f64, String>;
}

struct Prober<'a> {
    options: &'a OpenOptions,
}

impl Trier for Prober<'_> {
    fn devices(&mut self) -> devices::DeviceList {
        devices::devices_with(self.options.hip_library.clone())
    }

    fn step(&mut self, name: &BackendName, budget: Duration) -> Result<f64, String> {
        #[cfg(feature = "compare")]
        if crate::compare::has_children() {
            let library = self.options.hip_library.clone();
            let trial = crate::compare::trial(name, PATIENCE, library, Some(budget));
            return trial.step_s().ok_or_else(|| trial.describe());
        }
        guarded(name, || here(name, self.options, budget).map_err(|error| error.to_string()))
    }
}

/// Tries a backend in this process: seconds of a decode step.
fn here(name: &BackendName, options: &OpenOptions, budget: Duration) -> Result<f64> {
    let backend = open_named(name, options)?;
    measure::check(backend.as_ref())?;
    measure::step_seconds(backend.as_ref(), budget)
}

/// Runs `work`, which may end the process. A marker file exists while it runs; if the marker is left over
/// from an earlier process, `work` is skipped and an error returned.
fn guarded<T>(name: &BackendName, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let stem: String =
        name.to_string().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let Some(mark) = folder().map(|folder| folder.join(format!("auto-trying-{stem}"))) else { return work() };
    if mark.exists() {
        return Err(format!("the process ended when it was tried; remove {} to try again", mark.display()));
    }
    let _ = mark.parent().map(std::fs::create_dir_all);
    let _ = std::fs::write(&mark, []);
    let done = work();
    let _ = std::fs::remove_file(&mark);
    done
}

fn choose_with(marks: &[(String, String)], file: Option<&Path>, trier: &mut dyn Trier) -> Result<Choice> {
    let kept = file.and_then(|file| std::fs::read(file).ok());
    let kept = kept.and_then(|bytes| serde_json::from_slice::<Kept>(&bytes).ok());
    let changed = kept.as_ref().and_then(|kept| change(&kept.marks, marks));
    if let (Some(kept), None) = (kept, &changed) {
        return Ok(kept.choice);
    }
    let mut choice = measured(trier);
    if let Some(what) = changed {
        choice.reason = format!("{} (measured anew: {what})", choice.reason);
    }
    let kept = Kept { marks: marks.to_vec(), choice };
    if let Some(file) = file {
        // If the choice cannot be stored, it is measured again next time.
        let _ = file.parent().map(std::fs::create_dir_all);
        let _ = serde_json::to_vec_pretty(&kept).map(|text| std::fs::write(file, text));
    }
    Ok(kept.choice)
}

/// Describes the first mark that changed.
fn change(old: &[(String, String)], new: &[(String, String)]) -> Option<String> {
    let missing = |(name, value): &(String, String), among: &[(String, String)]| {
        !among.iter().any(|(n, v)| n == name && v == value)
    };
    let gone = old.iter().find(|mark| missing(mark, new));
    let come = new.iter().find(|mark| missing(mark, old));
    gone.or(come).map(|(name, _)| format!("{name} is not what it was"))
}

fn measured(trier: &mut dyn Trier) -> Choice {
    let list = trier.devices();
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
        why_not: Some("it computes on the processor, as cpu does".into()),
    });
    let cpu = View { backend: "cpu".into(), name: "the processor".into(), ..View::default() };
    let mut tried: Vec<Tried> = Vec::new();
    let budget = MEASURING / (cards.len() as u32 + 1);
    for view in cards.into_iter().chain([cpu]) {
        let name = view.backend.parse::<BackendName>();
        let step = match name {
            Ok(name) => trier.step(&name, budget),
            Err(error) => Err(error.to_string()),
        };
        let (step_s, why_not) = step.map_or_else(|why| (None, Some(why)), |step| (Some(step), None));
        tried.push(Tried { backend: view.backend, device: view.name, step_s, why_not });
    }
    let seconds = |t: &Tried| t.step_s.unwrap_or(f64::INFINITY);
    tried.sort_by(|a, b| seconds(a).total_cmp(&seconds(b)));
    tried.extend(left_out.chain(absent));
    let reason = reason(&tried);
    let works = tried.first().filter(|t| t.step_s.is_some());
    Choice { backend: works.map_or("cpu".into(), |t| t.backend.clone()), reason, tried }
}

/// Formats the reason: "hip:0 (name): 1.2 ms a step, the fastest of 2 (cpu 4.0 ms); vulkan:0 not used: why".
fn reason(tried: &[Tried]) -> String {
    let ms = |t: &Tried| t.step_s.map(|s| format!("{:.2} ms", s * 1e3));
    let working: Vec<&Tried> = tried.iter().filter(|t| t.step_s.is_some()).collect();
    let mut text = match working.split_first() {
        None => "nothing works here".to_string(),
        Some((best, [])) => format!("{} ({}) is all that works here", best.backend, best.device),
        Some((best, others)) => {
            let others: Vec<String> =
                others.iter().map(|t| format!("{} {}", t.backend, ms(t).unwrap_or_default())).collect();
            let time = ms(best).unwrap_or_default();
            format!(
                "{} ({}): {time} a step, the fastest of {} ({})",
                best.backend,
                best.device,
                working.len(),
                others.join(", ")
            )
        }
    };
    for t in tried {
        if let Some(why) = &t.why_not {
            text += &format!("; {} not used: {why}", t.backend);
        }
    }
    text
}

/// Prefixes of environment variables that change the behaviour of drivers.
const VARIABLES: &[&str] =
    &["HSA_", "HIP_", "ROCR_", "ROCM_", "GPU_", "AMD_", "CUDA_", "VK_", "RADV_", "MESA_", "DIPTYCH_", "LD_"];

/// Everything a choice depends on, as names and values. Any change triggers a new measurement.
fn marks(options: &OpenOptions) -> Vec<(String, String)> {
    let root = Root("/".into());
    let mut marks = vec![("diptych".to_string(), env!("CARGO_PKG_VERSION").to_string())];
    let mut add = |name: String, value: String| marks.push((name, value));
    add("kernel".into(), root.line("/proc/sys/kernel/osrelease").unwrap_or_default());
    add("NVIDIA's driver".into(), root.line("/proc/driver/nvidia/version").unwrap_or_default());
    for card in root.names("/sys/class/drm").into_iter().filter(|n| n.starts_with("card") && !n.contains('-'))
    {
        let id = |file: &str| root.line(format!("/sys/class/drm/{card}/device/{file}")).unwrap_or_default();
        add(card.clone(), format!("{} {}", id("vendor"), id("device")));
    }
    for driver in files::vulkan_drivers(&root) {
        let library = driver.library.as_deref().map(files::mark).unwrap_or_default();
        add(format!("Vulkan driver {}", driver.manifest.display()), library);
    }
    add("Vulkan's loader".into(), files::vulkan_loader(&root).map_or(String::new(), |p| files::mark(&p)));
    #[cfg(feature = "hip")]
    for library in super::drivers::hip_libraries(options) {
        add(format!("HIP library {}", library.display()), files::mark(&library));
    }
    let mut variables: Vec<(String, String)> = std::env::vars_os()
        .map(|(n, v)| (n.to_string_lossy().into_owned(), v.to_string_lossy().into_owned()))
        .filter(|(name, _)| VARIABLES.iter().any(|prefix| name.starts_with(prefix)))
        .collect();
    variables.sort();
    variables.into_iter().for_each(|(name, value)| add(format!("variable {name}"), value));
    add(
        "options".into(),
        format!("{:?} {:?} {:?}", options.threads, options.vulkan_arch, options.hip_library),
    );
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Devices and times of a simulated machine.
    struct Machine {
        views: Vec<(&'static str, Result<f64, &'static str>)>,
        measurements: usize,
    }

    impl Trier for Machine {
        fn devices(&mut self) -> devices::DeviceList {
            let mut list = devices::DeviceList::default();
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

        fn step(&mut self, name: &BackendName, budget: Duration) -> Result<f64, String> {
            assert!(budget <= MEASURING);
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
        let mut machine = Machine { views, measurements: 0 };
        let choose =
            |kernel, machine: &mut Machine| choose_with(&marks(kernel), Some(&file), machine).unwrap();
        let choice = choose("6.8", &mut machine);
        assert_eq!(choice.backend, "vulkan:0");
        let expected = "vulkan:0 (a card): 1.50 ms a step, the fastest of 2 (cpu 4.00 ms); hip:0 not used: crashed in \
                        phase enumerate: died of SIGSEGV; vulkan:9 not used: it computes on the processor, as cpu does; \
                        hip-nvidia not used: no libcuda";
        assert_eq!(choice.reason, expected);
        assert_eq!(machine.measurements, 3);
        // The choice is reused until a mark changes.
        assert_eq!(choose("6.8", &mut machine), choice);
        assert_eq!(machine.measurements, 3);
        machine.views[0].1 = Ok(0.001);
        let again = choose("6.9", &mut machine);
        assert_eq!((again.backend.as_str(), machine.measurements), ("hip:0", 6));
        assert!(again.reason.ends_with("(measured anew: kernel is not what it was)"), "{}", again.reason);
        // A broken file counts as missing.
        std::fs::write(&file, "{").unwrap();
        assert!(!choose("6.9", &mut machine).reason.contains("anew"));
        let mut alone = Machine { views: vec![("cpu", Ok(0.1))], measurements: 0 };
        let choice = choose_with(&marks("x"), None, &mut alone).unwrap();
        assert!(
            choice.reason.starts_with("cpu (the processor) is all that works here; "),
            "{}",
            choice.reason
        );
    }

    #[test]
    fn what_changed_is_named() {
        let mark = |name: &str, value: &str| (name.to_string(), value.to_string());
        let old = [mark("a", "1"), mark("b", "1")];
        assert_eq!(change(&old, &old), None);
        assert_eq!(change(&old, &[mark("a", "1")]).as_deref(), Some("b is not what it was"));
        assert_eq!(change(&old[..1], &old).as_deref(), Some("b is not what it was"));
        assert_eq!(change(&old, &[mark("a", "2"), mark("b", "1")]).as_deref(), Some("a is not what it was"));
    }
}
