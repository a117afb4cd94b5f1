//! Injected faults: failures of a broken driver, triggered on purpose by the virtual drivers in front of this
//! device.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The failure of a call, in place of its normal effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
    /// The call returns an error code.
    Fail(i32),
    /// The call blocks until [`Faults::release`].
    Hang,
    /// The call accepts queued work that never completes; a recorded command has no effect.
    Stall,
}

/// An F32 result that a kernel computes wrongly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wrong {
    /// Index among the floats that a launch writes, in address order; modulo their count.
    pub number: usize,
    /// Error to add, relative to the float's own magnitude or the root mean square of all of them, whichever
    /// is larger.
    pub size: f32,
}

/// A plan of faults: function, index of its call, and fault. Clones share their counters.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    planned: Mutex<Vec<(String, usize, Injection)>>,
    /// Number of allocations below [`SMALL`] that succeed before further ones hang (`None`: none hangs), and
    /// their count so far.
    small: Mutex<(Option<usize>, usize)>,
    calls: Mutex<HashMap<&'static str, usize>>,
    /// Substrings of the names of kernels with a wrong result.
    wrong: Mutex<Vec<(String, Wrong)>>,
    released: AtomicBool,
}

/// The functions of a driver, for [`Faults::parse`].
pub struct Functions<'a> {
    /// Returns true if the driver has a fallible function of this name.
    pub has: &'a dyn Fn(&str) -> bool,
    /// Functions that can stall because they queue their work.
    pub queued: &'a [&'a str],
}

/// Allocations below this size count as small.
const SMALL: usize = 64 << 10;

/// Error code of a call that hung until [`Faults::release`]: `hipErrorUnknown`; Vulkan does not use this
/// code.
const RELEASED: i32 = 999;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Faults {
    /// Adds a fault for the `n`th call of a function, counted from 0.
    pub fn at(self, function: &str, n: usize, injection: Injection) -> Faults {
        lock(&self.inner.planned).push((function.into(), n, injection));
        self
    }

    /// Makes allocations below 64 KiB hang after the first `n`, as observed with a real driver.
    pub fn hang_after_small_allocations(self, n: usize) -> Faults {
        lock(&self.inner.small).0 = Some(n);
        self
    }

    /// Makes every launch of a kernel whose name contains `kernel` compute one F32 result wrongly.
    pub fn wrong(self, kernel: &str, wrong: Wrong) -> Faults {
        lock(&self.inner.wrong).push((kernel.into(), wrong));
        self
    }

    /// Returns the wrong result planned for a kernel.
    pub fn wrong_of(&self, kernel: &str) -> Option<Wrong> {
        lock(&self.inner.wrong)
            .iter()
            .find(|(part, _)| kernel.contains(part.as_str()))
            .map(|(_, wrong)| *wrong)
    }

    /// Parses a comma-separated list of `fail=CODE@FUNCTION:N`, `hang@FUNCTION:N`, `stall@FUNCTION:N`,
    /// `hang@small:N`, `wrong=SIZE@KERNEL:N` (see [`Faults::wrong`]; KERNEL is a substring of a name, N the
    /// [`Wrong::number`]). N counts from 0; the default is 0.
    ///
    /// # Errors The item that cannot be parsed, and the expected form.
    pub fn parse(text: &str, functions: &Functions<'_>) -> Result<Faults, (String, &'static str)> {
        let mut faults = Faults::default();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let expect = |what: &'static str| (format!("'{item}'"), what);
            let wrong = || {
                expect(
                    "fail=CODE@FUNCTION:N, hang@FUNCTION:N, stall@FUNCTION:N, hang@small:N or wrong=SIZE@KERNEL:N",
                )
            };
            let (what, call) = item.split_once('@').ok_or_else(wrong)?;
            let (function, n) = match call.split_once(':') {
                Some((function, n)) => (function, n.parse().map_err(|_| wrong())?),
                None => (call, 0),
            };
            if let Some(("wrong", size)) = what.split_once('=') {
                let size = size.parse().ok().filter(|size: &f32| size.is_finite()).ok_or_else(wrong)?;
                faults = faults.wrong(function, Wrong { number: n, size });
                continue;
            }
            let injection = match what.split_once('=') {
                Some(("fail", code)) => Injection::Fail(code.parse().map_err(|_| wrong())?),
                None if what == "hang" => Injection::Hang,
                None if what == "stall" => Injection::Stall,
                _ => return Err(wrong()),
            };
            faults = match (function, injection) {
                ("small", Injection::Hang) => faults.hang_after_small_allocations(n),
                ("small", _) => return Err(wrong()),
                (_, Injection::Fail(0)) => return Err(expect("a code that is an error")),
                _ if !(functions.has)(function) => return Err(expect("a function that the driver has")),
                (_, Injection::Stall) if !functions.queued.contains(&function) => {
                    return Err(expect("a call to stall that leaves its work to a queue"));
                }
                _ => faults.at(function, n, injection),
            };
        }
        Ok(faults)
    }

    /// Makes all hanging calls return an error.
    pub fn release(&self) {
        self.inner.released.store(true, Ordering::Relaxed);
    }

    /// Returns the number of calls of a function.
    pub fn count(&self, function: &str) -> usize {
        lock(&self.inner.calls).get(function).copied().unwrap_or(0)
    }

    /// Counts a call and performs its planned fault; returns `Ok(true)` for a stall.
    ///
    /// # Errors The code that the call must return.
    pub fn enter(&self, function: &'static str) -> Result<bool, i32> {
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
            Some(Injection::Stall) => Ok(true),
            Some(Injection::Fail(code)) => Err(code),
            Some(Injection::Hang) => self.hang(),
        }
    }

    /// Counts an allocation of `bytes`; hangs if planned.
    ///
    /// # Errors The code that the call must return.
    pub fn allocation(&self, bytes: usize) -> Result<(), i32> {
        if bytes >= SMALL {
            return Ok(());
        }
        let mut small = lock(&self.inner.small);
        small.1 += 1;
        let hangs = small.0.is_some_and(|n| small.1 > n);
        drop(small);
        if hangs { self.hang().map(|_| ()) } else { Ok(()) }
    }

    /// Returns true if hanging calls have been released.
    pub fn released(&self) -> bool {
        self.inner.released.load(Ordering::Relaxed)
    }

    fn hang(&self) -> Result<bool, i32> {
        while !self.released() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(RELEASED)
    }
}
