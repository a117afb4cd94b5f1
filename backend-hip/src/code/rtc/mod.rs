//! Kernels compiled at run time, for targets without built-in code.
//!
//! hiprtc compiles the sources that [`hip_kernels`] embeds, with their headers and the options of the build.
//! It is searched in libamdhip64's directory first, then like libamdhip64 itself. In releases before 7.0
//! libamdhip64 also contains hiprtc's functions. One code object is compiled at a time, on the driver thread,
//! within the deadline of the phase `compile`. Each is stored on disk. Once loaded it lives as long as the
//! process, like those that are built in: a driver may read the code object of a module until it is unloaded,
//! which never happens if a device was given up.

use crate::arch::Target;
use crate::code::elf;
use crate::code::kernels::KernelSet;
use crate::driver::Driver;
use crate::op::{Context, Launch, Refusal};
use crate::options::{HipOptions, RtcMode};
use crate::provider::amd::Amd;
use crate::provider::amd::loader::rocm_directories;
use crate::sys::library::{Found, Library, Wanted, search};
use cache::{Cache, Key};
use ggml_core::fuse::Group;
use ggml_core::sync::lock;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};

pub(crate) mod cache;
#[allow(non_snake_case)]
pub mod symbols;

use symbols::{Handle, Symbols};

/// Maximum number of characters of the compiler's log that an error repeats.
const LOG_CHARS: usize = 2000;

/// As below, on Windows: the names include the minor version.
#[cfg(windows)]
const NAMES: [(Option<u32>, &[&str]); 3] = [
    (Some(7), &["hiprtc0702.dll", "hiprtc0701.dll", "hiprtc0700.dll"]),
    (Some(6), &["hiprtc0604.dll", "hiprtc0603.dll", "hiprtc0602.dll", "hiprtc0601.dll", "hiprtc0600.dll"]),
    (None, &["hiprtc0702.dll", "hiprtc0701.dll", "hiprtc0700.dll", "hiprtc0604.dll"]),
];

/// Library names by the major version of the runtime they belong to, and all of them for an unknown version.
#[cfg(not(windows))]
const NAMES: [(Option<u32>, &[&str]); 7] = [
    (Some(10), &["libhiprtc.so.10"]),
    (Some(9), &["libhiprtc.so.9"]),
    (Some(8), &["libhiprtc.so.8"]),
    (Some(7), &["libhiprtc.so.7"]),
    (Some(6), &["libhiprtc.so.6"]),
    (Some(5), &["libhiprtc.so.5"]),
    (
        None,
        &[
            "libhiprtc.so.10",
            "libhiprtc.so.9",
            "libhiprtc.so.8",
            "libhiprtc.so.7",
            "libhiprtc.so.6",
            "libhiprtc.so.5",
            "libhiprtc.so",
        ],
    ),
];

/// Returns the compiler for devices of this machine ("hiprtc 9.0 of /opt/rocm/lib/libhiprtc.so.7.2"). Loads
/// libamdhip64 and hiprtc; opens no device.
///
/// # Errors
/// The paths that were tried, each with the result.
pub fn find(options: &HipOptions) -> Result<String, String> {
    let amd = Amd::load(options)?;
    Rtc::load(options, &Runtime::of(&amd)).map(|rtc| rtc.describe())
}

/// HIP runtime that code is compiled for: libraries of different releases must not be mixed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runtime {
    /// File of the library.
    pub(crate) library: Option<PathBuf>,
    /// Major version.
    pub(crate) major: Option<u32>,
}

impl Runtime {
    /// Returns the runtime of a driver.
    pub(crate) fn of(driver: &dyn Driver) -> Runtime {
        let library = driver.versions().into_iter().find(|(name, _)| name == "library");
        Runtime { library: library.map(|(_, path)| path.into()), major: driver.major() }
    }
}

/// Loaded hiprtc.
#[derive(Debug)]
pub(crate) struct Rtc {
    symbols: Symbols,
    path: PathBuf,
    version: (c_int, c_int),
}

fn wanted(options: &HipOptions, runtime: &Runtime) -> Wanted {
    let of = |major| NAMES.iter().find(|(of, _)| *of == major).map(|(_, names)| *names);
    let names = of(runtime.major).or(of(None)).unwrap_or_default();
    let next_to = runtime.library.as_ref().and_then(|path| path.parent());
    let next_to = next_to.map(|directory| (directory.to_path_buf(), "directory of libamdhip64"));
    let directories = next_to.into_iter().chain(rocm_directories(options)).collect();
    Wanted { what: "libhiprtc", names, named: None, directories }
}

impl Rtc {
    /// Loads hiprtc. The error lists each path that was tried, with the result.
    pub(crate) fn load(options: &HipOptions, runtime: &Runtime) -> Result<Rtc, String> {
        let own = search(options, &wanted(options, runtime), Rtc::of);
        own.or_else(|tried| {
            let Some(path) = &runtime.library else { return Err(tried) };
            let within = |why: String| format!("{tried}; {} itself: {why}", path.display());
            let library = Library::open(path).map_err(within)?;
            Rtc::of(Found { library, name: path.clone(), how: "libamdhip64 itself".into() }).map_err(within)
        })
    }

    fn of(found: Found) -> Result<Rtc, String> {
        let Found { library, name, .. } = found;
        // SAFETY: `symbol` returns null or an address in the library, which is never unloaded. A library with
        // this name exports hiprtc's functions under their names.
        let symbols = unsafe { Symbols::resolve(|name| library.symbol(name).unwrap_or(null_mut())) };
        let symbols = symbols.map_err(|missing| format!("lacks {}", missing.join(", ")))?;
        let path = library.file(c"hiprtcVersion").unwrap_or(name);
        let (mut major, mut minor) = (0, 0);
        // SAFETY: writes two integers.
        let code = unsafe { (symbols.hiprtcVersion)(&mut major, &mut minor) };
        if code != 0 {
            return Err(format!("hiprtcVersion returned code {code}"));
        }
        Ok(Rtc { symbols, path, version: (major, minor) })
    }

    /// Returns "9.0 of /opt/rocm/lib/libhiprtc.so.6.2.0".
    pub(crate) fn describe(&self) -> String {
        format!("hiprtc {}.{} of {}", self.version.0, self.version.1, self.path.display())
    }

    /// Compiles a family's source for a target. Returns a code object, or the compiler's messages.
    pub(crate) fn compile(&self, stem: &str, options: &[String]) -> Result<Vec<u8>, String> {
        let text = |text: &str| CString::new(text).map_err(|_| "a source contains a zero byte".to_string());
        let source = text(hip_kernels::source(stem).ok_or("there is no such source")?)?;
        let name = text(&format!("{stem}.hip"))?;
        let headers: Vec<_> =
            hip_kernels::sources().iter().filter(|(name, _)| name.ends_with(".h")).collect();
        let names = headers.iter().map(|(name, _)| text(name)).collect::<Result<Vec<_>, _>>()?;
        let texts = headers.iter().map(|(_, body)| text(body)).collect::<Result<Vec<_>, _>>()?;
        let options = options.iter().map(|option| text(option)).collect::<Result<Vec<_>, _>>()?;
        let (names, texts, options) = (pointers(&names), pointers(&texts), pointers(&options));
        let mut program = Program { symbols: &self.symbols, handle: null_mut() };
        // SAFETY: writes one handle; all texts are C strings that outlive the call, and both arrays have as
        // many elements as the count specifies.
        let created = unsafe {
            (self.symbols.hiprtcCreateProgram)(
                &mut program.handle,
                source.as_ptr(),
                name.as_ptr(),
                texts.len() as c_int,
                texts.as_ptr(),
                names.as_ptr(),
            )
        };
        program.check("hiprtcCreateProgram", created)?;
        // SAFETY: the program was created; the options are C strings that outlive the call.
        let compiled = program.check("hiprtcCompileProgram", unsafe {
            (self.symbols.hiprtcCompileProgram)(program.handle, options.len() as c_int, options.as_ptr())
        });
        compiled.map_err(|why| format!("{why}: {}", program.log()))?;
        // SAFETY: the program was compiled; the first function writes a size, the second as many bytes.
        unsafe { program.bytes("hiprtcGetCode", self.symbols.hiprtcGetCodeSize, self.symbols.hiprtcGetCode) }
    }
}

/// Returns an array of C string pointers.
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).collect()
}

/// hiprtc program, destroyed on drop.
struct Program<'a> {
    symbols: &'a Symbols,
    handle: Handle,
}

impl Program<'_> {
    fn check(&self, call: &str, code: c_int) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the function accepts any integer and returns null or a C string that is never freed.
        let name = unsafe {
            let name = (self.symbols.hiprtcGetErrorString)(code);
            if name.is_null() { "".into() } else { CStr::from_ptr(name).to_string_lossy() }
        };
        Err(format!("{call} returned {name} ({code})"))
    }

    /// Calls a pair of functions: one returns the size in bytes, the other writes the bytes.
    ///
    /// # Safety
    /// The program must be in a state in which both may be called, and `get` must write as many bytes as
    /// `size` reports.
    unsafe fn bytes(
        &self,
        what: &str,
        size: unsafe extern "C" fn(Handle, *mut usize) -> c_int,
        get: unsafe extern "C" fn(Handle, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>, String> {
        let mut count = 0;
        // SAFETY: writes one size (guaranteed by the caller).
        self.check(what, unsafe { size(self.handle, &mut count) })?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(count).map_err(|_| format!("{what} of {count} bytes"))?;
        bytes.resize(count, 0u8);
        // SAFETY: writes `count` bytes (guaranteed by the caller), for which there is room.
        self.check(what, unsafe { get(self.handle, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }

    /// Returns the beginning of the compiler's log.
    fn log(&self) -> String {
        let (size, get) = (self.symbols.hiprtcGetProgramLogSize, self.symbols.hiprtcGetProgramLog);
        // SAFETY: a program has a log from its creation on; the functions write its size and as many bytes.
        let log = unsafe { self.bytes("the log", size, get) }.unwrap_or_default();
        let text: String = String::from_utf8_lossy(&log).chars().take(LOG_CHARS).collect();
        text.trim_matches(['\0', '\n', ' ']).into()
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the program was created and is destroyed once.
            unsafe { (self.symbols.hiprtcDestroyProgram)(&mut self.handle) };
        }
    }
}

/// Returns true if kernels are to be compiled for a device; `built_in` is the target of the built-in ones.
pub(crate) fn is_wanted(options: &HipOptions, built_in: Option<&str>, device: &Target) -> bool {
    let amd = device.processor.starts_with("gfx");
    match options.rtc {
        RtcMode::Off => false,
        RtcMode::Auto => amd && built_in.is_none(),
        RtcMode::Force => amd,
    }
}

/// Pending work for a device's kernels: compile them, or read them from disk.
pub(crate) struct Job {
    rtc: Rtc,
    target: String,
    cache: Cache,
}

/// Origin of a code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Compiled by this call.
    Compiled,
    /// Found on disk or already in this process.
    Stored,
}

impl Job {
    /// Loads hiprtc. The code is for the device's processor in any mode, like built-in code.
    pub(crate) fn new(options: &HipOptions, runtime: &Runtime, device: &Target) -> Result<Job, String> {
        let rtc = Rtc::load(options, runtime)?;
        let cache = Cache::new(options.cache_dir.clone());
        Ok(Job { rtc, target: device.processor.clone(), cache })
    }

    /// Returns "gfx1036 by hiprtc 9.0 of ...".
    pub(crate) fn describe(&self) -> String {
        format!("{} by {}", self.target, self.rtc.describe())
    }

    fn options(&self) -> Vec<String> {
        let offload = format!("--offload-arch={}", self.target);
        hip_kernels::OPTIONS.iter().map(|option| option.to_string()).chain([offload]).collect()
    }

    /// Returns the cache key of a family's code object.
    pub(crate) fn key(&self, stem: &str) -> Key {
        let library = self.rtc.path.file_name().unwrap_or_default().to_string_lossy();
        Key::new(stem, &self.options(), &format!("{:?} {library}", self.rtc.version))
    }

    /// Returns the code object of a family. The error contains the compiler's messages.
    pub(crate) fn object(&self, stem: &'static str) -> Result<(&'static [u8], Origin), String> {
        let key = self.key(stem);
        if let Some(image) = lock(&IMAGES).get(key.text()) {
            return Ok((image, Origin::Stored));
        }
        let fits = |image: &[u8]| self.examine(image);
        let (image, origin) = match self.cache.get(&key).filter(|image| fits(image).is_ok()) {
            Some(image) => (image, Origin::Stored),
            None => {
                let image = self.rtc.compile(stem, &self.options())?;
                fits(&image).map_err(|why| format!("the compiled code object {why}"))?;
                self.cache.put(&key, &image);
                (image, Origin::Compiled)
            }
        };
        let image: &'static [u8] = image.leak();
        Ok((lock(&IMAGES).entry(key.text().into()).or_insert(image), origin))
    }

    fn examine(&self, image: &[u8]) -> Result<(), String> {
        let target = Target::parse(&self.target).ok_or_else(|| format!("has no target '{}'", self.target))?;
        elf::read(image)?.suits(&target)
    }
}

/// Code objects of this process, by key.
static IMAGES: Mutex<BTreeMap<String, &'static [u8]>> = Mutex::new(BTreeMap::new());

/// Names of targets, which live as long as the code objects.
static TARGETS: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// Kernels compiled for one target.
pub(crate) struct Compiled {
    set: Arc<dyn KernelSet>,
    target: &'static str,
    objects: BTreeMap<&'static str, &'static [u8]>,
}

impl Compiled {
    /// Creates the set; `set` plans the launches of nodes.
    pub(crate) fn new(
        set: Arc<dyn KernelSet>,
        job: &Job,
        objects: BTreeMap<&'static str, &'static [u8]>,
    ) -> Compiled {
        let mut targets = lock(&TARGETS);
        let known = targets.iter().find(|known| **known == job.target).copied();
        let target = known.unwrap_or_else(|| {
            let target: &'static str = job.target.clone().leak();
            targets.push(target);
            target
        });
        Compiled { set, target, objects }
    }
}

impl KernelSet for Compiled {
    fn targets(&self) -> Vec<&'static str> {
        vec![self.target]
    }

    fn code_object(&self, target: &str, stem: &str) -> Option<&'static [u8]> {
        self.objects.get(stem).copied().filter(|_| target == self.target)
    }

    fn plan(&self, context: &Context<'_>, group: &Group) -> Result<Vec<Launch>, Refusal> {
        self.set.plan(context, group)
    }
}
