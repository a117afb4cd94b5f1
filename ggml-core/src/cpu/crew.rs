//! Threads that help with the steps of runs.
//!
//! A step of a small model takes a few microseconds: less than a thread needs to wake up, but several times what one
//! that is awake needs to see that there is work. So helpers stay awake between steps, and for a moment between runs.
//! Who has work takes part in it and waits for those alone who have begun: where no helper comes, it does everything.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a helper looks for work before it sleeps: the time between two tokens, as a rule.
const AWAKE: Duration = Duration::from_micros(200);

/// How often somebody who waits looks before others may have the processor: some microseconds.
const SPINS: usize = 200;

/// What is added to [`Desk::state`] when work begins, and again when it ends.
const TURN: u64 = 1 << 32;

/// The helpers of one caller at a time.
#[derive(Debug)]
pub(super) struct Crew {
    pool: rayon::ThreadPool,
    helpers: usize,
    desk: Arc<Desk>,
}

/// Where the work lies.
#[derive(Debug, Default)]
struct Desk {
    /// In the upper half the beginnings and ends of work so far, an odd number while there is some; in the lower half
    /// the helpers that are at it.
    state: AtomicU64,
    /// The work. It exists as long as there are helpers at it.
    work: AtomicPtr<Work<'static>>,
    /// Whether somebody has work there.
    taken: AtomicBool,
    /// Helpers that are awake, or about to be.
    awake: AtomicUsize,
}

struct Work<'a> {
    f: &'a (dyn Fn() + Sync),
    /// What a helper panicked with.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Crew {
    /// A crew of so many threads beside the caller's.
    ///
    /// # Errors
    /// The reason why the system gives none.
    pub(super) fn new(helpers: usize) -> Result<Crew, rayon::ThreadPoolBuildError> {
        let name = |i| format!("diptych-cpu-{}", i + 1);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(helpers).thread_name(name).build()?;
        Ok(Crew { pool, helpers, desk: Arc::default() })
    }

    /// Number of the calling thread: 0 unless it is one of the helpers, which are counted from 1.
    pub(super) fn index(&self) -> usize {
        self.pool.current_thread_index().map_or(0, |i| i + 1)
    }

    /// Calls `f` on this thread and on the helpers that come; returns when all these calls have.
    ///
    /// # Panics
    /// If a call does.
    pub(super) fn together(&self, f: &(dyn Fn() + Sync)) {
        // Work within work, and of another run at the same time, has no helpers.
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

    /// Wakes the helpers that sleep.
    fn wake(&self) {
        for _ in self.desk.awake.load(Ordering::SeqCst)..self.helpers {
            self.desk.awake.fetch_add(1, Ordering::SeqCst);
            let desk = self.desk.clone();
            self.pool.spawn(move || desk.help());
        }
    }
}

impl Desk {
    /// Lets helpers at the work until the result is dropped.
    fn open<'a>(&'a self, work: &'a Work<'_>) -> Open<'a> {
        self.work.store(ptr::from_ref(work).cast_mut().cast(), Ordering::Relaxed);
        self.state.fetch_add(TURN, Ordering::SeqCst);
        Open(self)
    }

    /// Whether there is work in `state` other than that of turn `done`.
    fn is_open(state: u64, done: u64) -> bool {
        let turn = state / TURN;
        turn % 2 == 1 && turn != done
    }

    /// Takes part in work until there has been none for a while.
    fn help(&self) {
        let mut done = 0;
        let (mut turns, mut since) = (0, None);
        loop {
            let state = self.state.load(Ordering::Acquire);
            if Desk::is_open(state, done) {
                let next = state + 1;
                if self.state.compare_exchange(state, next, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    done = state / TURN;
                    self.take_part();
                }
                (turns, since) = (0, None);
            } else if turns < SPINS || since.get_or_insert_with(Instant::now).elapsed() < AWAKE {
                pause(&mut turns);
            } else {
                self.awake.fetch_sub(1, Ordering::SeqCst);
                // Whoever began work before this did not see that a helper is missing.
                if !Desk::is_open(self.state.load(Ordering::SeqCst), done) {
                    return;
                }
                self.awake.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// Does the work, as a helper that is counted in `state`.
    fn take_part(&self) {
        // SAFETY: `Open` keeps the work alive, and this the one that is there, until the helper is no longer counted.
        let work = unsafe { &*self.work.load(Ordering::Relaxed) };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(work.f)) {
            *work.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
        }
        self.state.fetch_sub(1, Ordering::Release);
    }
}

/// Work that helpers may begin. Dropped, it waits for those that have: for as long as they need for the piece that they
/// are at.
struct Open<'a>(&'a Desk);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.state.fetch_add(TURN, Ordering::Relaxed);
        let mut turns = 0;
        while !self.0.state.load(Ordering::Acquire).is_multiple_of(TURN) {
            pause(&mut turns);
        }
        self.0.taken.store(false, Ordering::Release);
    }
}

/// Passes a moment.
fn pause(turns: &mut usize) {
    *turns += 1;
    if *turns <= SPINS {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers below `count` that were handed out, added up by whoever came.
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
                // Now and then the helpers have gone to sleep.
                if round % 1000 == 999 {
                    std::thread::sleep(5 * AWAKE);
                }
                assert_eq!(sum(&crew, 50), 1225);
            }
        }
    }

    #[test]
    fn helpers_come() {
        let crew = Crew::new(2).unwrap();
        let here = [const { AtomicBool::new(false) }; 3];
        crew.together(&|| {
            here[crew.index()].store(true, Ordering::SeqCst);
            while !here.iter().all(|here| here.load(Ordering::SeqCst)) {
                std::thread::yield_now();
            }
        });
    }

    /// Several callers at a time, and work within work.
    #[test]
    fn who_finds_no_helper_works_alone() {
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

    /// A panic of any of the calls reaches the caller, and the crew goes on.
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
