//! Faults on request: what a broken driver does, done on purpose, by the drivers that stand before this device.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a call does instead of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Returns a code.
    Fail(i32),
    /// Does not return until [`Faults::release`].
    Hang,
    /// Of a call that leaves its work to a queue: it is taken, and never completes. (Of a command: it has no effect.)
    Stall,
}

/// A number that a kernel computes wrongly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wrong {
    /// Which of the numbers that a launch writes, by address; counted around where there are fewer.
    pub number: usize,
    /// What is added to it: this part of its own magnitude or of the root mean square of all of them, whichever is larger.
    pub size: f32,
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
    /// Parts of the names of kernels that compute a number wrongly.
    wrong: Mutex<Vec<(String, Wrong)>>,
    released: AtomicBool,
}

/// What a driver has, for [`Faults::parse`].
pub struct Functions<'a> {
    /// Whether it has a function of this name that can fail.
    pub has: &'a dyn Fn(&str) -> bool,
    /// Functions whose work may stall: those that leave it to a queue.
    pub queued: &'a [&'a str],
}

/// Allocations below this size count as small.
const SMALL: usize = 64 << 10;

/// What a call returns that hung until [`Faults::release`]: `hipErrorUnknown`, and no code of Vulkan's.
const RELEASED: i32 = 999;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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

    /// Every launch of a kernel whose name contains a text computes a number (F32) wrongly.
    pub fn wrong(self, kernel: &str, wrong: Wrong) -> Faults {
        lock(&self.inner.wrong).push((kernel.into(), wrong));
        self
    }

    /// The number that a kernel computes wrongly.
    pub fn wrong_of(&self, kernel: &str) -> Option<Wrong> {
        lock(&self.inner.wrong)
            .iter()
            .find(|(part, _)| kernel.contains(part.as_str()))
            .map(|(_, wrong)| *wrong)
    }

    /// From text: `fail=CODE@FUNCTION:N`, `hang@FUNCTION:N`, `stall@FUNCTION:N`, `hang@small:N`, `wrong=SIZE@KERNEL:N`
    /// (see [`Faults::wrong`]; KERNEL is a part of a name, N the [`Wrong::number`]), separated by commas. N counts from
    /// 0 and is 0 where it is missing.
    ///
    /// # Errors
    /// What is not understood, and what was expected in its place.
    pub fn parse(text: &str, functions: &Functions<'_>) -> Result<Faults, (String, &'static str)> {
        let mut faults = Faults::default();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let expect = |what: &'static str| (format!("'{item}'"), what);
            let wrong = || {
                expect(
                    "fail=CODE@FUNCTION:N, hang@FUNCTION:N, stall@FUNCTION:N, hang@small:N or wrong=SIZE@KERNEL:N",
                )
            };
            let (what, place) = item.split_once('@').ok_or_else(wrong)?;
            let (function, n) = match place.split_once(':') {
                Some((function, n)) => (function, n.parse().map_err(|_| wrong())?),
                None => (place, 0),
            };
            if let Some(("wrong", size)) = what.split_once('=') {
                let size = size.parse().ok().filter(|size: &f32| size.is_finite()).ok_or_else(wrong)?;
                faults = faults.wrong(function, Wrong { number: n, size });
                continue;
            }
            let fault = match what.split_once('=') {
                Some(("fail", code)) => Fault::Fail(code.parse().map_err(|_| wrong())?),
                None if what == "hang" => Fault::Hang,
                None if what == "stall" => Fault::Stall,
                _ => return Err(wrong()),
            };
            faults = match (function, fault) {
                ("small", Fault::Hang) => faults.hang_after_small_allocations(n),
                ("small", _) => return Err(wrong()),
                (_, Fault::Fail(0)) => return Err(expect("a code that is an error")),
                _ if !(functions.has)(function) => return Err(expect("a function that the driver has")),
                (_, Fault::Stall) if !functions.queued.contains(&function) => {
                    return Err(expect("a call to stall that leaves its work to a queue"));
                }
                _ => faults.at(function, n, fault),
            };
        }
        Ok(faults)
    }

    /// Lets all calls that hang return, with an error.
    pub fn release(&self) {
        self.inner.released.store(true, Ordering::Relaxed);
    }

    /// How often a function was called.
    pub fn count(&self, function: &str) -> usize {
        lock(&self.inner.calls).get(function).copied().unwrap_or(0)
    }

    /// Counts a call and does what was planned for it; `Ok(true)` for a stall.
    ///
    /// # Errors
    /// The code that the call is to return.
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
            Some(Fault::Stall) => Ok(true),
            Some(Fault::Fail(code)) => Err(code),
            Some(Fault::Hang) => self.hang(),
        }
    }

    /// Counts an allocation.
    ///
    /// # Errors
    /// The code that the call is to return.
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

    /// Whether hanging calls have been let go.
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
