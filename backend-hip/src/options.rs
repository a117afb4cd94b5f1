//! Options for opening the backend. All environment variables are read here.

use crate::route::Route;
use ggml_core::environment;
use ggml_core::files::Root;
use ggml_core::phase::Deadlines;
use ggml_core::routes::{Routes, TUNE, Table, VARIABLE};
use ggml_core::{Error, Result};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

/// Variables of the HIP runtime and the layers below it that change the device or its behaviour. They are
/// read and reported, never set: the runtime reads them when its library is loaded.
pub const OVERRIDES: &[&str] = environment::HIP;

/// Variables of [`OVERRIDES`] that are set, sorted by name, including `HSA_OVERRIDE_GFX_VERSION_<node>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    variables: Vec<(String, String)>,
    /// Variables of the emulated device.
    emulated: Vec<(String, String)>,
}

impl Environment {
    /// Creates the environment from names and values; variables without effect are dropped.
    pub fn new(variables: impl IntoIterator<Item = (String, String)>) -> Environment {
        let matters = |name: &str| environment::is_recorded(name, &[OVERRIDES]);
        let all: Vec<_> = variables.into_iter().collect();
        let emulated = all.iter().filter(|(name, _)| name.starts_with("DIPTYCH_VIRTUAL_")).cloned().collect();
        let mut variables: Vec<_> = all.into_iter().filter(|(name, _)| matters(name)).collect();
        variables.sort();
        Environment { variables, emulated }
    }

    /// Returns the value of a variable if it is set and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.iter().find(|(n, v)| n == name && !v.is_empty()).map(|(_, v)| v.as_str())
    }

    /// Returns names and values of the variables that change an emulated device.
    pub(crate) fn emulated(&self) -> &[(String, String)] {
        &self.emulated
    }

    /// Returns all names and values.
    pub fn variables(&self) -> &[(String, String)] {
        &self.variables
    }
}

/// Stream that receives the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamMode {
    /// A stream of our own that does not wait for the NULL stream.
    #[default]
    Own,
    /// The NULL stream: slower if the device has other users, but a workaround for some hangs.
    Null,
}

/// Density of the progress marks of a run, which let an error name the node that was running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Breadcrumbs {
    /// A mark after every launch in a program's first run, then one after every 64th part of the run.
    #[default]
    Auto,
    /// A mark after every launch: errors name the exact node, but runs are slower.
    EveryLaunch,
}

/// Use of graphs: a program's launches are combined so that the runtime starts them as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Graphs {
    /// Used if the runtime's graphs are known to work: with NVIDIA's driver, and with HIP from 6.0 on unless
    /// the table of advice has a report of wrong results for the version and the processor. A program's first
    /// run still launches one kernel after the other, so that an error names its node. Branches of independent
    /// steps are used with NVIDIA's driver only.
    #[default]
    Auto,
    /// Used if the runtime supports graphs, with branches.
    On,
    /// Never used.
    Off,
}

/// Compilation of kernels at run time through hiprtc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RtcMode {
    /// Only for targets without built-in code.
    #[default]
    Auto,
    /// Always.
    Force,
    /// Never.
    Off,
}

/// Method of copying between pinned host memory and device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copies {
    /// A kernel, if host and device share one memory or a copy timed out when the device was last open in
    /// this process; else the runtime.
    #[default]
    Auto,
    /// The runtime, which uses the DMA engines (SDMA).
    Dma,
    /// A kernel.
    Kernel,
}

/// Memory in which weights are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostWeights {
    /// Device memory. If host and device share one memory, weights that the device's own part does not hold are stored in
    /// pinned host memory: so they fit even if the firmware reserves little for the device. Not on gfx942, where all of
    /// the memory is the device's.
    #[default]
    Auto,
    /// Pinned host memory, which the device reads in place.
    On,
    /// Device memory.
    Off,
}

/// Use of matrix units for products and attention of prompts, if rounding is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatrixUnits {
    /// Kernels that have run on a device: NVIDIA's. AMD's are compiled and checked against the layouts that
    /// AMD documents, but no card has executed them. Kernels for attention of rows of more than 256 elements
    /// are left out too, including NVIDIA's.
    #[default]
    Auto,
    /// Used if the device has matrix units.
    On,
    /// Never used.
    Off,
}

/// Names of an option's values in the environment and in reports; the default first.
type Names<T> = &'static [(&'static str, T)];

const STREAMS: Names<StreamMode> = &[("own", StreamMode::Own), ("null", StreamMode::Null)];
const BREADCRUMBS: Names<Breadcrumbs> = &[("auto", Breadcrumbs::Auto), ("every", Breadcrumbs::EveryLaunch)];
const GRAPHS: Names<Graphs> = &[("auto", Graphs::Auto), ("on", Graphs::On), ("off", Graphs::Off)];
const COPIES: Names<Copies> = &[("auto", Copies::Auto), ("dma", Copies::Dma), ("kernel", Copies::Kernel)];
const HOST_WEIGHTS: Names<HostWeights> =
    &[("auto", HostWeights::Auto), ("on", HostWeights::On), ("off", HostWeights::Off)];
const MATRIX_UNITS: Names<MatrixUnits> =
    &[("auto", MatrixUnits::Auto), ("on", MatrixUnits::On), ("off", MatrixUnits::Off)];
const RTC_MODES: Names<RtcMode> =
    &[("auto", RtcMode::Auto), ("force", RtcMode::Force), ("off", RtcMode::Off)];

/// Sets an option from its environment variable, if the variable is set.
fn choose<T: Copy>(variables: &[(String, String)], name: &str, names: Names<T>, to: &mut T) -> Result<()> {
    let Some((_, text)) = variables.iter().find(|(n, v)| n == name && !v.is_empty()) else { return Ok(()) };
    let found = names.iter().find(|(known, _)| known == text);
    let allowed = || names.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(" or ");
    *to = found.ok_or_else(|| Error::argument(name, format!("'{text}'"), allowed()))?.1;
    Ok(())
}

/// Returns an option that differs from the default, for reports.
fn changed<T: Copy + PartialEq>(what: &str, names: Names<T>, value: T) -> Option<(String, String)> {
    let (name, _) = names.iter().skip(1).find(|(_, known)| *known == value)?;
    Some((what.into(), (*name).into()))
}

/// Options for opening a device.
#[derive(Clone, Debug)]
pub struct HipOptions {
    /// Index of the device in the runtime's list, after the runtime's filters.
    pub device: usize,
    /// Path of the runtime's library. `None`: it is searched. If a path is given, no other library is tried.
    pub library: Option<PathBuf>,
    /// Path of the library of NVIDIA's driver, for the provider `hip-nvidia`; searched and tried like
    /// `library`.
    pub cuda_library: Option<PathBuf>,
    /// Compilation of kernels at run time.
    pub rtc: RtcMode,
    /// Directory for code objects that were compiled at run time. `None`: they are not stored.
    pub cache_dir: Option<PathBuf>,
    /// Deadlines of the phases.
    pub deadlines: Deadlines,
    /// Stream that receives the work.
    pub stream: StreamMode,
    /// Size of the pinned host memory for transfers in bytes; one copy uses a quarter of it.
    pub staging_bytes: usize,
    /// Choice of routes, see [`Route`]. `None`: those that were verified on the device or are known to
    /// work on devices like it. The following four options name single routes.
    pub routes: Option<Routes>,
    /// Directory of the verdicts on routes; `None`: none are read.
    pub routes_dir: Option<PathBuf>,
    /// `off` for the numbers of the tuning table, whatever was measured, or the path of a file with others, see
    /// [`Routes::tuned_by`].
    pub tune: Option<String>,
    /// Method of copying between host and device.
    pub copies: Copies,
    /// Memory in which weights are stored.
    pub host_weights: HostWeights,
    /// Density of progress marks.
    pub breadcrumbs: Breadcrumbs,
    /// Use of graphs.
    pub graphs: Graphs,
    /// Use of matrix units in products and attention.
    pub matrix_units: MatrixUnits,
    /// True if runs measure device time with a pair of events.
    pub device_timing: bool,
    /// True if new memory is filled with a pattern that reads as NaN, which exposes reads of uninitialised
    /// memory.
    pub poison_memory: bool,
    /// Environment that is reported, and in which the library is searched.
    pub environment: Environment,
    /// Root of system paths ("/"). With another root only files below it are read, so the loader's own search
    /// path is not used.
    pub system_root: PathBuf,
    /// Function that opens a device node for reading and writing and closes it again.
    pub open_node: fn(&Path) -> io::Result<()>,
}

impl Default for HipOptions {
    /// Returns options for device 0 with a searched library, without reading the environment.
    fn default() -> HipOptions {
        HipOptions {
            device: 0,
            library: None,
            cuda_library: None,
            rtc: RtcMode::default(),
            cache_dir: None,
            deadlines: Deadlines::default(),
            stream: StreamMode::default(),
            staging_bytes: 32 << 20,
            routes: None,
            routes_dir: None,
            tune: None,
            copies: Copies::default(),
            host_weights: HostWeights::default(),
            breadcrumbs: Breadcrumbs::default(),
            graphs: Graphs::default(),
            matrix_units: MatrixUnits::default(),
            device_timing: true,
            poison_memory: cfg!(debug_assertions),
            environment: Environment::default(),
            system_root: PathBuf::from("/"),
            open_node: |path| OpenOptions::new().read(true).write(true).open(path).map(drop),
        }
    }
}

impl HipOptions {
    /// Returns the defaults, overridden by environment variables:
    ///
    /// * `DIPTYCH_HIP_LIBRARY`: [`HipOptions::library`]
    /// * `DIPTYCH_CUDA_LIBRARY`: [`HipOptions::cuda_library`]
    /// * `DIPTYCH_HIP_RTC` = `auto`, `force` or `off`: [`HipOptions::rtc`]
    /// * `XDG_CACHE_HOME` or `HOME`: [`HipOptions::cache_dir`] is `diptych/hip` in the former, or in `.cache`
    ///   of the latter
    /// * `DIPTYCH_ROUTES`: [`HipOptions::routes`]; [`HipOptions::routes_dir`] is `diptych/routes` beside `diptych/hip`
    /// * `DIPTYCH_TUNE`: [`HipOptions::tune`]
    /// * `DIPTYCH_HIP_STREAM` = `own` or `null`: [`HipOptions::stream`]
    /// * `DIPTYCH_HIP_COPIES` = `auto`, `dma` or `kernel`: [`HipOptions::copies`]
    /// * `DIPTYCH_HIP_HOST_WEIGHTS` = `auto`, `on` or `off`: [`HipOptions::host_weights`]
    /// * `DIPTYCH_HIP_BREADCRUMBS` = `auto` or `every`: [`HipOptions::breadcrumbs`]
    /// * `DIPTYCH_HIP_GRAPHS` = `auto`, `on` or `off`: [`HipOptions::graphs`]
    /// * `DIPTYCH_HIP_MATRIX_UNITS` = `auto`, `on` or `off`: [`HipOptions::matrix_units`]
    /// * the variables of [`OVERRIDES`]: [`HipOptions::environment`]
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an invalid value of a `DIPTYCH_HIP_` variable.
    pub fn from_env() -> Result<HipOptions> {
        HipOptions::from_variables(std::env::vars_os().collect())
    }

    fn from_variables(variables: Vec<(OsString, OsString)>) -> Result<HipOptions> {
        let path = |name: &str| {
            variables.iter().find(|(n, v)| n == name && !v.is_empty()).map(|(_, v)| PathBuf::from(v))
        };
        // The XDG specification requires relative paths to be ignored.
        let directory = |name: &str| path(name).filter(|path| path.is_absolute());
        let cache = directory("XDG_CACHE_HOME").or_else(|| directory("HOME").map(|home| home.join(".cache")));
        let mut options = HipOptions {
            library: path("DIPTYCH_HIP_LIBRARY"),
            cuda_library: path("DIPTYCH_CUDA_LIBRARY"),
            routes_dir: cache.as_ref().map(|path| path.join("diptych/routes")),
            cache_dir: cache.map(|path| path.join("diptych/hip")),
            ..HipOptions::default()
        };
        let text = |s: &OsString| s.to_string_lossy().into_owned();
        let variables: Vec<_> = variables.iter().map(|(n, v)| (text(n), text(v))).collect();
        choose(&variables, "DIPTYCH_HIP_STREAM", STREAMS, &mut options.stream)?;
        choose(&variables, "DIPTYCH_HIP_BREADCRUMBS", BREADCRUMBS, &mut options.breadcrumbs)?;
        choose(&variables, "DIPTYCH_HIP_GRAPHS", GRAPHS, &mut options.graphs)?;
        choose(&variables, "DIPTYCH_HIP_COPIES", COPIES, &mut options.copies)?;
        choose(&variables, "DIPTYCH_HIP_HOST_WEIGHTS", HOST_WEIGHTS, &mut options.host_weights)?;
        choose(&variables, "DIPTYCH_HIP_MATRIX_UNITS", MATRIX_UNITS, &mut options.matrix_units)?;
        choose(&variables, "DIPTYCH_HIP_RTC", RTC_MODES, &mut options.rtc)?;
        let routes = variables.iter().find(|(name, value)| name == VARIABLE && !value.is_empty());
        if let Some((name, text)) = routes {
            let wrong = |_| Error::argument(name, format!("'{text}'"), Routes::FORMS);
            options.routes = Some(text.parse().map_err(wrong)?);
        }
        let tune = variables.iter().find(|(name, value)| name == TUNE && !value.is_empty());
        options.tune = tune.map(|(_, value)| value.clone());
        options.environment = Environment::new(variables);
        Ok(options)
    }

    /// Returns the same options for another device.
    pub fn with_device(mut self, device: usize) -> HipOptions {
        self.device = device;
        self
    }

    /// Returns the root of system paths.
    pub fn root(&self) -> Root {
        Root::new(&self.system_root)
    }

    /// Returns where a system path lies, see [`Root::at`].
    pub fn rooted(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root().at(path)
    }

    /// Returns true if system paths are those of this machine.
    pub fn is_this_system(&self) -> bool {
        self.system_root == Path::new("/")
    }

    /// True if weights are to be stored in host memory wherever the device could hold them: the route was asked for by
    /// name, as checks of it do, or by its option.
    pub(crate) fn asks_for_host_weights(&self) -> bool {
        self.named_routes().asked(Route::HostWeights.row().name) == Some(true)
    }

    /// Returns the choice of routes and candidates, with those that other options stand for.
    ///
    /// # Errors
    /// As [`Routes::tuned_by`].
    pub(crate) fn chosen_routes(&self) -> Result<Routes> {
        match &self.tune {
            Some(value) => self.named_routes().tuned_by(value),
            None => Ok(self.named_routes()),
        }
    }

    /// Returns the choice of routes, with those that other options stand for.
    pub(crate) fn named_routes(&self) -> Routes {
        let mut routes = self.routes.clone().unwrap_or_default();
        let mut name = |of: &[Route], is_used: Option<bool>| {
            for (route, is_used) in of.iter().filter_map(|route| Some((route.row().name, is_used?))) {
                routes = std::mem::take(&mut routes).or(route, is_used);
            }
        };
        name(
            &[Route::MatrixProducts, Route::MatrixAttention],
            match self.matrix_units {
                MatrixUnits::Auto => None,
                MatrixUnits::On => Some(true),
                MatrixUnits::Off => Some(false),
            },
        );
        name(
            &[Route::Graphs, Route::GraphBranches],
            match self.graphs {
                Graphs::Auto => None,
                Graphs::On => Some(true),
                Graphs::Off => Some(false),
            },
        );
        name(
            &[Route::KernelCopies],
            match self.copies {
                Copies::Auto => None,
                Copies::Dma => Some(false),
                Copies::Kernel => Some(true),
            },
        );
        name(
            &[Route::HostWeights],
            match self.host_weights {
                HostWeights::Auto => None,
                HostWeights::On => Some(true),
                HostWeights::Off => Some(false),
            },
        );
        routes
    }

    /// Returns the options that were set, for reports.
    pub(crate) fn forced(&self) -> Vec<(String, String)> {
        let mut forced = Vec::new();
        if let Some(library) = &self.library {
            forced.push(("library".into(), library.display().to_string()));
        }
        if let Some(library) = &self.cuda_library {
            forced.push(("cuda library".into(), library.display().to_string()));
        }
        forced.extend(self.routes.as_ref().map(|routes| ("routes".into(), routes.to_string())));
        forced.extend(changed("hiprtc", RTC_MODES, self.rtc));
        forced.extend(changed("stream", STREAMS, self.stream));
        forced.extend(changed("copies", COPIES, self.copies));
        forced.extend(changed("host weights", HOST_WEIGHTS, self.host_weights));
        forced.extend(changed("breadcrumbs", BREADCRUMBS, self.breadcrumbs));
        forced.extend(changed("graphs", GRAPHS, self.graphs));
        forced.extend(changed("matrix units", MATRIX_UNITS, self.matrix_units));
        forced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_read_once() {
        let set = |pairs: &[(&str, &str)]| {
            HipOptions::from_variables(pairs.iter().map(|(n, v)| (n.into(), v.into())).collect())
        };
        let options = set(&[
            ("DIPTYCH_HIP_LIBRARY", "/opt/x/libamdhip64.so"),
            ("DIPTYCH_HIP_STREAM", "null"),
            ("HSA_OVERRIDE_GFX_VERSION_1", "9.0.6"),
            ("HSA_ENABLE_SDMA", "0"),
            ("HOME", "/root"),
        ])
        .unwrap();
        assert_eq!(options.library.as_deref(), Some(Path::new("/opt/x/libamdhip64.so")));
        assert_eq!(options.stream, StreamMode::Null);
        let names: Vec<&str> = options.environment.variables().iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(names, ["HSA_ENABLE_SDMA", "HSA_OVERRIDE_GFX_VERSION_1"]);
        assert_eq!(options.forced().len(), 2);
        assert_eq!(options.cache_dir.as_deref(), Some(Path::new("/root/.cache/diptych/hip")));
        assert_eq!(set(&[("DIPTYCH_HIP_LIBRARY", "")]).unwrap().library, None);
        let options = set(&[("XDG_CACHE_HOME", "/c"), ("HOME", "/h"), ("DIPTYCH_HIP_RTC", "force")]).unwrap();
        assert_eq!(options.cache_dir.as_deref(), Some(Path::new("/c/diptych/hip")));
        assert_eq!((options.rtc, options.forced().len()), (RtcMode::Force, 1));
        assert_eq!(set(&[("XDG_CACHE_HOME", "relative")]).unwrap().cache_dir, None);
        let error = set(&[("DIPTYCH_HIP_STREAM", "nul")]).unwrap_err().to_string();
        assert_eq!(error, "DIPTYCH_HIP_STREAM: 'nul'; expected own or null");
        let options = set(&[("DIPTYCH_HIP_COPIES", "kernel"), ("DIPTYCH_HIP_HOST_WEIGHTS", "off")]).unwrap();
        assert_eq!((options.copies, options.host_weights), (Copies::Kernel, HostWeights::Off));
        assert_eq!(options.forced().len(), 2);
        let options = set(&[("DIPTYCH_HIP_MATRIX_UNITS", "off")]).unwrap();
        assert_eq!((options.matrix_units, options.forced().len()), (MatrixUnits::Off, 1));
        assert!(set(&[("DIPTYCH_HIP_COPIES", "sdma")]).is_err());
        assert_eq!(options.rooted("/dev/kfd"), Path::new("/dev/kfd"));
    }
}
