//! Helper threads for the steps of a run.
//!
//! A step of a small model takes a few microseconds. That is less than the time to wake a thread, but several
//! times what an awake thread needs to notice new work. So helpers stay awake between steps and for a short
//! time between runs. The caller works on its own job and waits only for helpers that have started; if none
//! wakes up in time, it does all of it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time that a helper polls before it sleeps; usually covers the time between two tokens.
const AWAKE: Duration = Duration::from_micros(200);

/// Number of polls before a waiting thread yields the processor: a few microseconds.
const SPINS: usize = 200;

/// Added to [`Desk::state`] when a job is published, and again when it is closed.
const TURN: u64 = 1 << 32;

/// Helper threads, which serve one caller at a time.
#[derive(Debug)]
pub(super) struct Crew {
    pool: rayon::ThreadPool,
    helpers: usize,
    desk: Arc<Desk>,
}

/// Shared state that publishes a job to the helpers.
#[derive(Debug, Default)]
struct Desk {
    /// Upper half, the turn: number of times that a job was published or closed, odd while a job is open.
    /// Lower half: number of helpers working on it.
    state: AtomicU64,
    /// The current job. It stays valid while helpers work on it.
    work: AtomicPtr<Work<'static>>,
    /// True while a caller has the helpers.
    taken: AtomicBool,
    /// Number of helpers that are awake or about to wake up.
    awake: AtomicUsize,
}

/// A job.
struct Work<'a> {
    f: &'a (dyn Fn() + Sync),
    /// Payload of a helper's panic.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Crew {
    /// Starts `helpers` threads in addition to the caller's.
    ///
    /// # Errors
    /// The operating system's error if it cannot start the threads.
    pub(super) fn new(helpers: usize) -> Result<Crew, rayon::ThreadPoolBuildError> {
        let name = |i| format!("diptych-cpu-{}", i + 1);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(helpers).thread_name(name).build()?;
        Ok(Crew { pool, helpers, desk: Arc::default() })
    }

    /// Returns the index of the calling thread: helpers count from 1, any other thread is 0.
    pub(super) fn index(&self) -> usize {
        self.pool.current_thread_index().map_or(0, |i| i + 1)
    }

    /// Calls `f` on this thread and on the available helpers; returns when all these calls have returned. `f`
    /// must divide the work among its calls, so that any number of calls, even one, completes it.
    ///
    /// # Panics
    /// If any call of `f` panics.
    pub(super) fn together(&self, f: &(dyn Fn() + Sync)) {
        // Nested calls, and calls while another run has the helpers, run on the calling thread only.
        if self.desk.taken.swap(true, Ordering::Acquire) {
            return f();
        }
        let work = Work { f, panic: Mutex::new(None) };
        let open = self.desk.open(&work);
        self.wake();
        f();
        drop(open);
        if let Some(panic) = work.panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
            resume_unwind(panic);
        }
    }

    /// Wakes sleeping helpers. A helper sleeps when its task, [`Desk::help`], has ended; this starts it
    /// again.
    fn wake(&self) {
        for _ in self.desk.awake.load(Ordering::SeqCst)..self.helpers {
            self.desk.awake.fetch_add(1, Ordering::SeqCst);
            let desk = self.desk.clone();
            self.pool.spawn(move || desk.help());
        }
    }
}

impl Desk {
    /// Publishes the job; helpers may join until the guard is dropped.
    fn open<'a>(&'a self, work: &'a Work<'_>) -> Open<'a> {
        self.work.store(ptr::from_ref(work).cast_mut().cast(), Ordering::Relaxed);
        self.state.fetch_add(TURN, Ordering::SeqCst);
        Open(self)
    }

    /// Returns true if `state` has an open job other than that of turn `done`.
    fn is_open(state: u64, done: u64) -> bool {
        let turn = state / TURN;
        turn % 2 == 1 && turn != done
    }

    /// Runs jobs, each once, until there has been none for [`AWAKE`].
    fn help(&self) {
        let mut done = 0;
        let (mut polls, mut since) = (0, None);
        loop {
            let state = self.state.load(Ordering::Acquire);
            if Desk::is_open(state, done) {
                let next = state + 1;
                if self.state.compare_exchange(state, next, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    done = state / TURN;
                    self.take_part();
                }
                (polls, since) = (0, None);
            } else if polls < SPINS || since.get_or_insert_with(Instant::now).elapsed() < AWAKE {
                pause(&mut polls);
            } else {
                self.awake.fetch_sub(1, Ordering::SeqCst);
                // A job published before this decrement did not see that a helper is missing, so check again.
                if !Desk::is_open(self.state.load(Ordering::SeqCst), done) {
                    return;
                }
                self.awake.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// Runs the job as a helper that is counted in `state`.
    fn take_part(&self) {
        // SAFETY: `Open` keeps the job alive, and unchanged in `work`, until this helper is no longer
        // counted.
        let work = unsafe { &*self.work.load(Ordering::Relaxed) };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(work.f)) {
            *work.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
        }
        self.state.fetch_sub(1, Ordering::Release);
    }
}

/// Guard of a published job. Dropping it closes the job, waits until the helpers that have joined have
/// returned from it, and lets other callers use the helpers.
struct Open<'a>(&'a Desk);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.state.fetch_add(TURN, Ordering::Relaxed);
        let mut polls = 0;
        while !self.0.state.load(Ordering::Acquire).is_multiple_of(TURN) {
            pause(&mut polls);
        }
        self.0.taken.store(false, Ordering::Release);
    }
}

/// Waits between two polls: spins for the first [`SPINS`], then yields the processor.
fn pause(polls: &mut usize) {
    *polls += 1;
    if *polls <= SPINS {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums the indices below `count`, distributed over all threads that take part.
    fn sum(crew: &Crew, count: usize) -> usize {
        let (next, sum) = (AtomicUsize::new(0), AtomicUsize::new(0));
        crew.together(&|| {
            while let n = next.fetch_add(1, Ordering::Relaxed)
                && n < count
            {
                sum.fetch_add(n, Ordering::Relaxed);
            }
        });
        sum.into_inner()
    }

    #[test]
    fn all_work_is_done_when_the_call_returns() {
        for helpers in [1, 3, 9] {
            let crew = Crew::new(helpers).unwrap();
            for round in 0..3000 {
                // Helpers sleep from time to time.
                if round % 1000 == 999 {
                    std::thread::sleep(5 * AWAKE);
                }
                assert_eq!(sum(&crew, 50), 1225);
            }
        }
    }

    #[test]
    fn helpers_join() {
        let crew = Crew::new(2).unwrap();
        let here = [const { AtomicBool::new(false) }; 3];
        crew.together(&|| {
            here[crew.index()].store(true, Ordering::SeqCst);
            while !here.iter().all(|here| here.load(Ordering::SeqCst)) {
                std::thread::yield_now();
            }
        });
    }

    /// Several concurrent callers, and nested calls.
    #[test]
    fn callers_without_helpers_work_alone() {
        let crew = Crew::new(2).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        crew.together(&|| assert_eq!(sum(&crew, 20), 190));
                    }
                });
            }
        });
    }

    /// A panic in any call reaches the caller, and the helpers remain usable.
    #[test]
    fn a_panic_reaches_the_caller() {
        let crew = Crew::new(1).unwrap();
        for guilty in [0, 1] {
            let (crew, came) = (&crew, &AtomicUsize::new(0));
            let result = catch_unwind(AssertUnwindSafe(|| {
                crew.together(&|| {
                    came.fetch_add(1, Ordering::SeqCst);
                    while came.load(Ordering::SeqCst) < 2 {
                        std::thread::yield_now();
                    }
                    assert!(crew.index() != guilty, "planted");
                });
            }));
            assert!(result.is_err());
            assert_eq!(sum(crew, 50), 1225);
        }
    }
}
