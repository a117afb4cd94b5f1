//! Opening of a device, phase by phase, and its description.

use super::copies;
use super::events::{AHEAD, GRAPHS, MARKS, RunEvents};
use super::monitor::Monitor;
use super::routes::{self, Ability};
use super::session::Session;
use super::staging::{ALIGNMENT, Staging};
use super::thread::bounded;
use crate::advice::{self, Situation};
use crate::arch::{Profile, Target};
use crate::code::excerpt::Loader;
use crate::code::kernels::{KernelSet, Kernels};
use crate::code::rtc::{self, Job, Runtime};
use crate::driver::codes::{Call, describe, driver_error, refuses_code};
use crate::driver::{Driver, Properties, WRONG_LIBRARY};
use crate::installed;
use crate::options::{Graphs, HipOptions, RtcMode, StreamMode};
use crate::provider::{amd, nvidia};
use crate::route::Route;
use crate::system::{self, NvidiaReport, SystemReport, kfd_gpu_at, pci_text, read_line};
use ggml_core::backend::{DeviceInfo, Limits, Stats};
use ggml_core::routes::Identity;
use ggml_core::routes::Table;
use ggml_core::{Error, Missing, Phase, Result, phase};
use std::fmt::Write;
use std::sync::{Arc, Mutex};

/// Function that creates the driver, on the thread that will use it.
pub(crate) type Provider = Box<dyn FnOnce(&HipOptions) -> Result<Arc<dyn Driver>, String> + Send>;

/// Results of opening in addition to the session.
pub(crate) struct Opened {
    /// Description of the device for reports.
    pub(crate) info: DeviceInfo,
    /// Device properties that kernels rely on.
    pub(crate) profile: Profile,
    /// Built-in kernels.
    pub(crate) kernels: Kernels,
    /// Loader of kernels that are text.
    pub(crate) loader: Option<Loader>,
    /// Compilation at run time, if it is needed. Its kernels replace `kernels`.
    pub(crate) job: Option<Job>,
    /// Facts about the system that advice depends on.
    pub(crate) situation: Situation,
    /// True if a kernel is to copy between host and device, instead of the runtime.
    pub(crate) copy_by_kernel: bool,
    /// True if weights are stored in pinned host memory.
    pub(crate) host_weights: bool,
    /// True if the device's caches keep them there.
    pub(crate) cached_weights: bool,
    /// Use of graphs on this device.
    pub(crate) graphs: Graphs,
    /// Pinned host memory for transfers.
    pub(crate) staging: Staging,
    /// Events of runs that are waited for immediately.
    pub(crate) events: RunEvents,
    /// Sets of events for runs that begin before earlier ones have ended, one for each of them.
    pub(crate) ahead: Vec<Arc<RunEvents>>,
}

/// Loads the runtime, selects the device and opens a session on it: the phases load_runtime, enumerate and
/// open_device. It runs on the driver thread.
pub(crate) fn open(
    monitor: &Arc<Monitor>,
    options: &HipOptions,
    provider: Provider,
    stats: &Arc<Mutex<Stats>>,
    set: Arc<dyn KernelSet>,
) -> Result<(Session, Opened)> {
    let (driver, count) = bring_up(monitor, options, provider)?;
    monitor.set_phase(Phase::OpenDevice);
    let _span = phase::enter(Phase::OpenDevice, &monitor.backend);
    let index = u32::try_from(options.device).ok().filter(|&i| i < count).ok_or_else(|| {
        let hidden = hiding_some(options, &*driver).map_or(String::new(), |text| format!("; {text}"));
        let device = options.device;
        let reason = format!("device {device} was requested, but the runtime lists {count}{hidden}");
        unavailable(monitor, Missing::Device, reason)
    })?;
    let properties = properties(monitor, &*driver, index)?;
    phase::learnt("device", &format!("{} ({})", properties.name, properties.arch));
    let mut profile = profile(monitor, &properties)?;
    let kernels = Kernels::new(set, &profile.target);
    profile.matrix = routes::matrix_units(&profile, kernels.target());
    profile.copies = routes::profile_of_code(kernels.target()).unwrap_or(profile.clone()).copies;
    let mut job = compile_job(monitor, options, &*driver, &kernels, &profile.target)?;
    let own_stream = options.stream == StreamMode::Own;
    if driver.name() == amd::NAME {
        let versions = driver.versions();
        let target = profile.target.processor.as_str();
        let situation = Situation::read(options, &versions, target, properties.pci);
        // Before the session: its end waits for the NULL stream, which it would create.
        refuse_blind_driver(monitor, &situation, &versions, &*driver)?;
    }
    let mut session = Session::open(driver.clone(), monitor.clone(), stats.clone(), index)?;
    if own_stream {
        session.create_stream()?;
    }
    let mut refusal = None;
    let mut code_works = false;
    if job.is_none() && may_compile(options, &profile.target) {
        refusal = refusal_of_code(&mut session, &kernels)?;
        code_works = refusal.is_none() && kernels.word_copier().is_ok();
        if let Some(why) = &mut refusal {
            job = job_after_refusal(monitor, options, &*driver, &profile.target, why);
        }
    }
    let staging = Staging::open(&mut session, options.staging_bytes)?;
    let events = RunEvents::open(&mut session, MARKS, options.device_timing)?;
    let ahead =
        (0..AHEAD).map(|_| RunEvents::open(&mut session, GRAPHS, options.device_timing).map(Arc::new));
    let ahead = ahead.collect::<Result<_>>()?;
    let (mut info, mut situation) = info(monitor, options, &*driver, &properties);
    situation.code_works = code_works;
    let code = job.as_ref().map_or(kernels.target().unwrap_or("none").into(), Job::describe);
    info.versions.push(("code objects".into(), code));
    info.versions.extend(refusal.map(|why| ("code objects refused".into(), why)));
    let compiler = kernels.target().filter(|_| job.is_none()).and_then(hip_kernels::compiler);
    info.versions.extend(compiler.map(|c| ("kernel compiler".into(), c.into())));
    let target = kernels.target().filter(|_| job.is_none());
    info.identity = routes::identity(&info, options, target, &profile);
    let ability = Ability {
        options,
        backend: &monitor.backend,
        driver: &*driver,
        properties: &properties,
        situation: &situation,
        profile: &profile,
    };
    let routes::Choice { routes: used, candidates, uses } = ability.choose(&info.identity)?;
    [info.routes, info.candidates] = uses;
    let graphs = routes::graphs(used);
    routes::apply((used, candidates), options, &mut profile, &mut situation);
    let (copy_by_kernel, host_weights) = (used.has(Route::KernelCopies), used.has(Route::HostWeights));
    // Advice depends on the ways in which the device is used.
    info.features.retain(|(name, _)| name != "advice");
    info.features.extend(advice::known(&situation).map(|row| ("advice".to_string(), row.text())));
    let opened = Opened {
        graphs,
        info,
        profile,
        kernels,
        loader: Loader::of(&driver, &session.libraries()),
        job,
        situation,
        copy_by_kernel,
        host_weights,
        cached_weights: used.has(Route::CachedWeights),
        staging,
        events,
        ahead,
    };
    Ok((session, opened))
}

/// Returns the compilation at run time, if the device has no built-in code or the options request it; `None`
/// if the built-in code is used. An error lists the built-in targets and the paths that were searched for a
/// compiler.
fn compile_job(
    monitor: &Monitor,
    options: &HipOptions,
    driver: &dyn Driver,
    kernels: &Kernels,
    device: &Target,
) -> Result<Option<Job>> {
    let missing = kernels.missing(device);
    if !rtc::is_wanted(options, kernels.target(), device) {
        let refuse = |reason| Err(unavailable(monitor, Missing::Feature, reason));
        return missing.map_or(Ok(None), refuse);
    }
    monitor.enter(Call::LoadLibrary);
    let job = Job::new(options, &Runtime::of(driver), device);
    monitor.leave();
    job.map(Some).map_err(|why| {
        let missing = missing.unwrap_or_else(|| "compilation at run time was requested".into());
        unavailable(monitor, Missing::Feature, format!("{missing}; at run time: {why}"))
    })
}

/// Returns true if the options allow a compilation at run time that they do not require.
fn may_compile(options: &HipOptions, device: &Target) -> bool {
    options.rtc == RtcMode::Auto && device.processor.starts_with("gfx")
}

/// Loads one built-in code object. Returns the runtime's answer if it refuses code objects like this one: it
/// is older than their format, for example.
fn refusal_of_code(session: &mut Session, kernels: &Kernels) -> Result<Option<String>> {
    let Ok(kernel) = kernels.word_copier() else { return Ok(None) };
    match session.load(&kernel) {
        Ok(_) => Ok(None),
        Err(Error::Driver { code, name, .. }) if refuses_code(code) => Ok(Some(format!("{name} ({code})"))),
        Err(error) => Err(error),
    }
}

/// Returns the compilation for a runtime that refuses the built-in code: it may have a compiler whose code it
/// accepts. Without a compiler the reason is added to the refusal, and the programs that need code fail.
fn job_after_refusal(
    monitor: &Monitor,
    options: &HipOptions,
    driver: &dyn Driver,
    device: &Target,
    refusal: &mut String,
) -> Option<Job> {
    monitor.enter(Call::LoadLibrary);
    let job = Job::new(options, &Runtime::of(driver), device);
    monitor.leave();
    if let Err(why) = &job {
        let _ = write!(refusal, "; at run time: {why}");
    }
    let backend = &monitor.backend;
    tracing::warn!(target: "diptych::hip", backend, "the runtime refuses the built-in kernels: {refusal}");
    job.ok()
}

/// Returns all devices that the runtime lists, with or without kernels for them. The calls run on a thread of
/// their own, with the deadline `deadlines.open`. An empty list is an error, and so is a device whose
/// properties cannot be read.
pub(crate) fn enumerate(backend: &str, options: &HipOptions, provider: Provider) -> Result<Vec<DeviceInfo>> {
    let (prefix, limit, options) = (backend.to_string(), options.deadlines.open, options.clone());
    bounded(backend, limit, move |monitor| {
        let (driver, count) = bring_up(monitor, &options, provider)?;
        (0..count)
            .map(|index| {
                let properties = properties(monitor, &*driver, index)?;
                let (mut info, _) = info(monitor, &options, &*driver, &properties);
                info.backend = format!("{prefix}:{index}");
                Ok(info)
            })
            .collect()
    })
}

/// Loads the runtime and counts devices; returns an error if there is none.
fn bring_up(monitor: &Monitor, options: &HipOptions, provider: Provider) -> Result<(Arc<dyn Driver>, u32)> {
    let driver = {
        let _span = phase::enter(Phase::LoadRuntime, &monitor.backend);
        monitor.enter(Call::LoadLibrary);
        let driver = provider(options).map_err(|reason| unavailable(monitor, Missing::Library, reason))?;
        monitor.leave();
        phase::learnt("driver", driver.name());
        driver
    };
    monitor.set_phase(Phase::Enumerate);
    let _span = phase::enter(Phase::Enumerate, &monitor.backend);
    refuse_old_driver(monitor, options, &*driver)?;
    monitor.enter(Call::Init);
    let init = driver.init();
    monitor.enter(Call::DeviceCount);
    let count = driver.device_count();
    monitor.leave();
    driver.versions().iter().for_each(|(name, value)| phase::learnt(name, value));
    match (init, count) {
        (Ok(()), Ok(count)) if count > 0 => Ok((driver, count)),
        (init, count) => Err(no_device(monitor, options, &*driver, init.err(), count)),
    }
}

/// Returns an error if the runtime would disable every device because of the version of the kernel's compute driver:
/// without one, HIP 5.2 ends the process.
fn refuse_old_driver(monitor: &Monitor, options: &HipOptions, driver: &dyn Driver) -> Result<()> {
    let Some(library) = driver.library() else { return Ok(()) };
    let gpus = SystemReport::read(options).gpus;
    // HIP 5.2 ends the process when it is asked for its version, too.
    let hip = installed::version_of(options, library);
    let text = hip.map(|(major, minor, patch)| ("hip runtime".into(), format!("{major}.{minor}.{patch}")));
    let versions: Vec<(String, String)> = text.into_iter().collect();
    let mut rows = gpus.iter().map(|gpu| {
        let situation = Situation::read(options, &versions, &gpu.target.processor, gpu.pci);
        Some((advice::too_old_driver(&situation, Phase::Enumerate)?, situation))
    });
    // A device that is not disabled can be used.
    let Some(Some((row, situation))) = rows.next().filter(|_| rows.all(|row| row.is_some())) else {
        return Ok(());
    };
    Err(unavailable(monitor, Missing::Device, too_old(row, &situation, &versions)))
}

/// Returns an error if the runtime would end the process when it creates a stream: it lacks the kernel's answer about
/// free memory, of which it then reports next to nothing.
fn refuse_blind_driver(
    monitor: &Monitor,
    situation: &Situation,
    versions: &[(String, String)],
    driver: &dyn Driver,
) -> Result<()> {
    /// No device has so little.
    const NOTHING: u64 = 1 << 16;
    let Some(row) = advice::too_old_driver(situation, Phase::OpenDevice) else { return Ok(()) };
    monitor.enter(Call::MemoryInfo);
    let memory = driver.memory();
    monitor.leave();
    match memory {
        Ok((free, _)) if free >= NOTHING => Ok(()),
        _ => Err(unavailable(monitor, Missing::Feature, too_old(row, situation, versions))),
    }
}

/// Describes a kernel's compute driver that is too old for the runtime.
fn too_old(row: &advice::Advice, situation: &Situation, versions: &[(String, String)]) -> String {
    let kfd = situation.kernel.kfd.map_or(String::new(), |(major, minor)| format!("KFD {major}.{minor}: "));
    let of_runtime = versions.iter().map(|(name, value)| format!("{name}: {value}"));
    let parts: Vec<String> = std::iter::once(format!("{kfd}{}", row.advice)).chain(of_runtime).collect();
    parts.join("; ")
}

/// Creates the error for a missing device. The runtime reports "no device" both if there is none and if this
/// user may not open it; this function distinguishes the two. The most probable cause comes first, because
/// screens show the beginning: a wrong library, denied nodes, variables that hide devices.
fn no_device(
    monitor: &Monitor,
    options: &HipOptions,
    driver: &dyn Driver,
    init: Option<i32>,
    count: Result<u32, i32>,
) -> Error {
    let (denied, found) = describe_system(driver, options);
    let missing = if denied.is_empty() { Missing::Device } else { Missing::Permission };
    let of_wrong = |(name, _): &(String, String)| name == WRONG_LIBRARY;
    let (wrong, versions): (Vec<_>, Vec<_>) = driver.versions().into_iter().partition(of_wrong);
    let named = |(name, value): (String, String)| format!("{name}: {value}");
    let mut parts: Vec<String> = wrong.into_iter().map(named).collect();
    parts.extend(denied);
    parts.extend(hiding_all(options, driver));
    let answer = |code: Option<i32>| code.map_or("hipSuccess (0)".into(), |c| describe(driver, c));
    let counted = match count {
        Ok(count) => format!("{count} devices"),
        Err(code) => answer(Some(code)),
    };
    let init = answer(init);
    parts.push(format!("the runtime lists no device (hipInit: {init}, hipGetDeviceCount: {counted})"));
    parts.push(found);
    parts.extend(versions.into_iter().map(named));
    unavailable(monitor, missing, parts.join("; "))
}

/// Returns the device nodes that this user may not open, and a description of the system's devices of the
/// driver's vendor.
fn describe_system(driver: &dyn Driver, options: &HipOptions) -> (Vec<String>, String) {
    if driver.name() == nvidia::NAME {
        let system = NvidiaReport::read(options);
        return (system.denied().map(|n| n.describe()).collect(), system.describe());
    }
    let system = SystemReport::read(options);
    (system.denied().map(|n| n.describe()).collect(), system.describe())
}

/// Describes the variable that hides every device, or that may: where the kernel lists no device, as on WSL, this
/// cannot be told.
fn hiding_all(options: &HipOptions, driver: &dyn Driver) -> Option<String> {
    if driver.name() == nvidia::NAME {
        let value = options.environment.get("CUDA_VISIBLE_DEVICES")?;
        let first = value.split(',').next().and_then(|index| index.parse().ok());
        let devices = NvidiaReport::read(options).devices();
        let hides = first.is_none_or(|index: usize| index >= devices);
        return hides.then(|| format!("CUDA_VISIBLE_DEVICES={value} may hide every device"));
    }
    let gpus = SystemReport::read(options).gpus;
    let may = |setting| format!("{setting} may hide devices");
    match system::hiding_all(&options.environment, &gpus) {
        Some(setting) => Some(format!("{setting} hides every device")),
        None if gpus.is_empty() => system::any_set(&options.environment).map(may),
        None => None,
    }
}

/// Describes the variable that hides a device.
fn hiding_some(options: &HipOptions, driver: &dyn Driver) -> Option<String> {
    if driver.name() == nvidia::NAME {
        let value = options.environment.get("CUDA_VISIBLE_DEVICES")?;
        return Some(format!("CUDA_VISIBLE_DEVICES={value} is set"));
    }
    let gpus = SystemReport::read(options).gpus;
    let hidden = |gpu: &system::KfdGpu| {
        let setting = system::hiding(&options.environment, &gpus, gpu.pci)?;
        Some(format!("{setting} hides the {} at {}", gpu.target, pci_text(gpu.pci)))
    };
    gpus.iter().find_map(hidden).or_else(|| hiding_all(options, driver))
}

fn unavailable(monitor: &Monitor, missing: Missing, reason: String) -> Error {
    Error::Unavailable { backend: monitor.backend.clone(), phase: monitor.phase(), missing, reason }
}

fn properties(monitor: &Monitor, driver: &dyn Driver, index: u32) -> Result<Properties> {
    monitor.enter(Call::Properties);
    let reply = driver.properties(index);
    monitor.leave();
    reply.map_err(|code| driver_error(&monitor.backend, driver, monitor.phase(), Call::Properties, code))
}

/// Returns the profile of a device, or an error if its properties are implausible.
fn profile(monitor: &Monitor, p: &Properties) -> Result<Profile> {
    let implausible = |what: String| {
        let reason = format!(
            "{what}, read through {}: the library is no HIP runtime, or one with an unknown layout",
            p.layout
        );
        unavailable(monitor, Missing::Feature, reason)
    };
    let target =
        Target::parse(&p.arch).ok_or_else(|| implausible(format!("the target's name is '{}'", p.arch)))?;
    if p.wave != 32 && p.wave != 64 {
        return Err(implausible(format!("wavefronts of {} threads", p.wave)));
    }
    if p.memory < 1 << 20 || p.lds_bytes == 0 || p.max_threads == 0 || p.compute_units == 0 {
        let what = format!(
            "{} bytes of memory, {} of LDS, {} threads in a work-group, {} compute units",
            p.memory, p.lds_bytes, p.max_threads, p.compute_units
        );
        return Err(implausible(what));
    }
    let known = Profile::of(&target).ok_or_else(|| {
        unavailable(monitor, Missing::Feature, format!("{target} belongs to no known family of processors"))
    })?;
    if known.wave != p.wave {
        return Err(implausible(format!(
            "wavefronts of {} threads on {target}, which has {}",
            p.wave, known.wave
        )));
    }
    Ok(Profile {
        lds_bytes: known.lds_bytes.min(p.lds_bytes),
        max_threads: known.max_threads.min(p.max_threads),
        compute_units: p.compute_units,
        ..known
    })
}

fn info(
    monitor: &Monitor,
    options: &HipOptions,
    driver: &dyn Driver,
    p: &Properties,
) -> (DeviceInfo, Situation) {
    let mut versions = driver.versions();
    let arch = p.arch.split(':').next().unwrap_or_default();
    let mut situation = Situation::read(options, &versions, arch, p.pci);
    situation.dma_copies = !copies::by_kernel(p, &monitor.backend);
    let graphs = advice::graphs(&situation, options.graphs);
    situation.graphs = graphs != Graphs::Off;
    situation.memory = Some(p.memory);
    situation.branches = graphs == Graphs::On && driver.has_branches();
    versions.push(("properties".into(), p.layout.into()));
    versions.extend(system_versions(options, driver, &situation));
    versions.push(("diptych".into(), env!("CARGO_PKG_VERSION").into()));
    let mut overrides = options.environment.variables().to_vec();
    overrides.extend(options.forced());
    // Before 7.0 the runtime refuses single allocations beyond 85 % of the memory.
    let largest = match driver.major() {
        Some(..=6) => p.memory / 100 * 85,
        _ => p.memory,
    };
    let mut features = features(options, p);
    if graphs != options.graphs && options.named_routes().asked(Route::Graphs.row().name).is_none() {
        let text = "off: they are reported to fail with this version of the runtime on this processor";
        features.push(("graphs".into(), text.into()));
    }
    features.extend(advice::known(&situation).map(|row| ("advice".to_string(), row.text())));
    let info = DeviceInfo {
        backend: monitor.backend.clone(),
        name: p.name.clone(),
        driver: driver.name().into(),
        versions,
        arch: arch.into(),
        uuid: p.uuid.map(uuid_text),
        memory: Some(p.memory),
        unified: p.integrated,
        features,
        overrides,
        limits: Limits { max_allocation: largest, max_binding: largest, alignment: ALIGNMENT },
        routes: Vec::new(),
        candidates: Vec::new(),
        identity: Identity::default(),
    };
    (info, situation)
}

/// Returns versions below the runtime: the installed release, the kernel, the firmware.
fn system_versions(
    options: &HipOptions,
    driver: &dyn Driver,
    situation: &Situation,
) -> Vec<(String, String)> {
    let mut versions = Vec::new();
    let mut add =
        |name: &str, text: Option<String>| versions.extend(text.map(|text| (name.to_string(), text)));
    let kernel = &situation.kernel;
    add("kernel", kernel.release.map(|(major, minor)| format!("{major}.{minor}")));
    if driver.name() == nvidia::NAME {
        add("kernel driver", NvidiaReport::read(options).kernel_driver);
        return versions;
    }
    add("rocm", read_line(options, "/opt/rocm/.info/version"));
    add("amdgpu", read_line(options, "/sys/module/amdgpu/version"));
    add("amdgpu.cwsr_enable", kernel.cwsr.map(|on| u8::from(on).to_string()));
    add("MES firmware", kernel.mes.map(|version| format!("{version:#x}")));
    versions
}

fn features(options: &HipOptions, p: &Properties) -> Vec<(String, String)> {
    let mut features = vec![
        ("target".to_string(), p.arch.clone()),
        ("wave".into(), p.wave.to_string()),
        ("compute units".into(), p.compute_units.to_string()),
        ("LDS bytes".into(), p.lds_bytes.to_string()),
        ("L2 bytes".into(), p.l2_bytes.to_string()),
        ("clock MHz".into(), (p.clock_khz / 1000).to_string()),
        ("memory clock MHz".into(), (p.memory_clock_khz / 1000).to_string()),
        ("memory bus bits".into(), p.memory_bus_bits.to_string()),
        ("integrated".into(), p.integrated.to_string()),
        ("PCI".into(), pci_text(p.pci)),
    ];
    features.extend(p.large_bar.map(|bar| ("large BAR".into(), bar.to_string())));
    if let Some(profile) = Target::parse(&p.arch).as_ref().and_then(Profile::of) {
        features.push(("class".into(), profile.family.name().into()));
        features.push(("dot4".into(), format!("{:?}", profile.dot4)));
        features.push(("matrix".into(), format!("{:?}", profile.matrix)));
        features.push(("packed half".into(), profile.packed_half.to_string()));
    }
    // An override changes the processor that the runtime reports; the kernel driver reports the real one.
    if let Some(gpu) = kfd_gpu_at(options, p.pci) {
        features.push(("kernel driver's target".into(), gpu.target.to_string()));
    }
    features
}

/// Formats a UUID. AMD's runtime returns 16 hexadecimal digits as text, others 16 bytes.
fn uuid_text(uuid: [u8; 16]) -> String {
    match std::str::from_utf8(&uuid) {
        Ok(text) if text.bytes().all(|b| b.is_ascii_hexdigit()) => format!("GPU-{text}"),
        _ => uuid.iter().fold(String::new(), |mut text, b| {
            let _ = write!(text, "{b:02x}");
            text
        }),
    }
}
