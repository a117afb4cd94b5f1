//! Faults on request: what a broken driver does, done on purpose.

use crate::driver::Code;
use crate::driver::codes::Call;
use crate::sync::lock;
use ggml_core::{Error, Result};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a call does instead of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Returns a code.
    Fail(Code),
    /// Does not return until [`Faults::release`].
    Hang,
    /// Of a launch, a copy or a fill: it is taken, and never completes.
    Stall,
}

/// A plan of faults: which call, at which time, does what. Copies share their counts.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    planned: Mutex<Vec<(String, usize, Fault)>>,
    /// The allocation smaller than [`SMALL`] that hangs, and how many there were.
    small: Mutex<(Option<usize>, usize)>,
    calls: Mutex<HashMap<&'static str, usize>>,
    released: AtomicBool,
}

/// Functions whose work may stall: those that leave it to the queue.
const QUEUED: [Call; 3] = [Call::Launch, Call::Copy, Call::Fill];

/// Allocations below this size count as small.
pub(super) const SMALL: usize = 64 << 10;

impl Faults {
    /// Adds a fault: the `n`th call of a function, from 0.
    pub fn at(self, function: &str, n: usize, fault: Fault) -> Faults {
        lock(&self.inner.planned).push((function.into(), n, fault));
        self
    }

    /// After `n` allocations below 64 KiB, the next one hangs, as a driver was seen to do.
    pub fn hang_after_small_allocations(self, n: usize) -> Faults {
        lock(&self.inner.small).0 = Some(n);
        self
    }

    /// From text: `fail=CODE@FUNCTION:N`, `hang@FUNCTION:N`, `stall@FUNCTION:N`, `hang@small:N`, separated by commas.
    /// N counts from 0 and is 0 where it is missing. FUNCTION is one of [`Call`]; only launches, copies and fills stall.
    ///
    /// # Errors
    /// An argument error that quotes what is not understood.
    pub fn parse(text: &str) -> Result<Faults> {
        let mut faults = Faults::default();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let expect = |what: &str| Error::argument(super::FAULTS_VARIABLE, format!("'{item}'"), what);
            let wrong = || expect("fail=CODE@FUNCTION:N, hang@FUNCTION:N, stall@FUNCTION:N or hang@small:N");
            let (what, place) = item.split_once('@').ok_or_else(wrong)?;
            let (function, n) = match place.split_once(':') {
                Some((function, n)) => (function, n.parse().map_err(|_| wrong())?),
                None => (place, 0),
            };
            let fault = match what.split_once('=') {
                Some(("fail", code)) => Fault::Fail(code.parse().map_err(|_| wrong())?),
                None if what == "hang" => Fault::Hang,
                None if what == "stall" => Fault::Stall,
                _ => return Err(wrong()),
            };
            faults = match (function, fault) {
                ("small", Fault::Hang) => faults.hang_after_small_allocations(n),
                ("small", _) => return Err(wrong()),
                _ => match Call::from_name(function) {
                    None | Some(Call::LoadLibrary) => return Err(expect("a function that HIP has")),
                    Some(call) if fault == Fault::Stall && !QUEUED.contains(&call) => {
                        return Err(expect("a launch, a copy or a fill to stall"));
                    }
                    Some(_) if fault == Fault::Fail(0) => return Err(expect("a code that is an error")),
                    Some(_) => faults.at(function, n, fault),
                },
            };
        }
        Ok(faults)
    }

    /// Lets all calls that hang return, with `hipErrorUnknown`.
    pub fn release(&self) {
        self.inner.released.store(true, Ordering::Relaxed);
    }

    /// How often a function was called.
    pub fn count(&self, function: &str) -> usize {
        lock(&self.inner.calls).get(function).copied().unwrap_or(0)
    }

    /// Counts a call and does what was planned for it; `Ok(true)` for a stall.
    pub(super) fn enter(&self, function: &'static str) -> std::result::Result<bool, Code> {
        let now = {
            let mut calls = lock(&self.inner.calls);
            let count = calls.entry(function).or_default();
            *count += 1;
            *count - 1
        };
        let planned = lock(&self.inner.planned);
        let fault = planned.iter().find(|(name, n, _)| name == function && *n == now).map(|f| f.2);
        drop(planned);
        match fault {
            None => Ok(false),
            Some(Fault::Stall) => Ok(true),
            Some(Fault::Fail(code)) => Err(code),
            Some(Fault::Hang) => self.hang(),
        }
    }

    /// Counts an allocation.
    pub(super) fn allocation(&self, bytes: usize) -> std::result::Result<(), Code> {
        if bytes >= SMALL {
            return Ok(());
        }
        let mut small = lock(&self.inner.small);
        small.1 += 1;
        let hangs = small.0.is_some_and(|n| small.1 > n);
        drop(small);
        if hangs { self.hang().map(|_| ()) } else { Ok(()) }
    }

    /// Whether hanging calls have been let go.
    pub(super) fn released(&self) -> bool {
        self.inner.released.load(Ordering::Relaxed)
    }

    fn hang(&self) -> std::result::Result<bool, Code> {
        while !self.released() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(999)
    }
}
