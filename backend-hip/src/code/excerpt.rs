//! Excerpts of a driver's text that are compiled alone.
//!
//! NVIDIA's driver compiles PTX when it loads it, all kernels of a text one after the other: 13 seconds for attention
//! with all head sizes on an H200. A program needs a few of them. So each kernel is a text of its own, and several threads
//! load those of a program.

use crate::code::ptx;
use crate::driver::{Driver, Library, Module};
use ggml_core::Deadline;
use ggml_core::sync::lock;
use ggml_core::threads::{self, Undone};
use std::cmp::Reverse;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// A text without all its kernels but one.
#[derive(Debug)]
pub(crate) struct Excerpt {
    text: &'static [u8],
    kernels: Arc<[Range<usize>]>,
    kernel: usize,
    /// Module on the device, or `None` if loading failed.
    loaded: OnceLock<Option<Module>>,
}

impl Excerpt {
    /// Creates the excerpt with kernel number `kernel` of a text.
    pub(crate) fn new(text: &'static [u8], kernels: &Arc<[Range<usize>]>, kernel: usize) -> Excerpt {
        Excerpt { text, kernels: kernels.clone(), kernel, loaded: OnceLock::new() }
    }

    /// Returns the text with this kernel only.
    pub(crate) fn text(&self) -> Vec<u8> {
        ptx::excerpt(self.text, &self.kernels, self.kernel)
    }

    /// Returns the module, if a thread of the loader has loaded it.
    pub(crate) fn module(&self) -> Option<Module> {
        self.loaded.get().copied().flatten()
    }

    fn load(&self, driver: &dyn Driver, libraries: &Mutex<Vec<Library>>) {
        self.loaded.get_or_init(|| {
            let (library, module) = driver.load_library(&self.text())?;
            lock(libraries).push(library);
            Some(module)
        });
    }
}

/// Libraries that are loaded on a device. The session that owns the device unloads them.
pub(crate) type Libraries = Arc<Mutex<Vec<Library>>>;

/// Loader of a device's excerpts. It does not keep the driver open.
pub(crate) struct Loader {
    driver: Weak<dyn Driver>,
    libraries: Libraries,
    threads: usize,
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loader").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl Loader {
    /// Creates the loader of a driver, if the driver loads with several threads.
    pub(crate) fn of(driver: &Arc<dyn Driver>, libraries: &Libraries) -> Option<Loader> {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let (driver, works) = (Arc::downgrade(driver), driver.has_libraries());
        works.then(|| Loader { driver, libraries: libraries.clone(), threads })
    }

    /// Loads the excerpts that are not loaded yet, each with the name of a node that needs it. Threads that do not start
    /// are no error: what is not loaded here is loaded by the session.
    ///
    /// # Errors
    /// The name of the first node whose kernel was not loaded before the deadline.
    pub(crate) fn load(
        &self,
        name: &str,
        excerpts: Vec<(Arc<Excerpt>, String)>,
        deadline: &Deadline,
    ) -> Result<(), Option<String>> {
        let is_open = |(excerpt, _): &(Arc<Excerpt>, String)| excerpt.loaded.get().is_none();
        let mut open: Vec<_> = excerpts.into_iter().filter(is_open).collect();
        open.sort_by_key(|(excerpt, _)| Arc::as_ptr(excerpt).addr());
        open.dedup_by(|a, b| Arc::ptr_eq(&a.0, &b.0));
        // The longest text first, so that no thread begins it when the others end.
        open.sort_by_key(|(excerpt, _)| Reverse(excerpt.kernels.get(excerpt.kernel).map_or(0, Range::len)));
        let (open, driver, libraries) = (Arc::new(open), self.driver.clone(), self.libraries.clone());
        let load = move |(excerpt, _): &(Arc<Excerpt>, String)| {
            if let Some(driver) = driver.upgrade() {
                excerpt.load(&*driver, &libraries);
            }
            Ok(())
        };
        match threads::for_each(&format!("{name} compile"), self.threads, &open, deadline, load) {
            Ok(()) => Ok(()),
            Err(Undone::Late) => {
                Err(open.iter().find(|excerpt| is_open(excerpt)).map(|(_, node)| node.clone()))
            }
            Err(Undone::Failed(_) | Undone::NoThread(_)) => {
                tracing::warn!(target: "diptych::hip", "kernels of {name} are compiled one by one");
                Ok(())
            }
        }
    }
}
