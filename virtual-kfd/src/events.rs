//! Events and those who wait for them, by the rules of the kernel (`drivers/gpu/drm/amd/amdkfd/kfd_events.c`):
//! an event that is set wakes all waiters; one with automatic reset stays set only if nobody waited for it.

use crate::abi;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest sleep of a waiter, after which it looks again. Nothing relies on it: [`Events::late`] counts the
/// waits that it ended.
const SLICE: Duration = Duration::from_secs(1);
/// Most events of a process: the slots of the page that the runtime reads.
const MOST: usize = 4096;

/// Report of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// A signal; its age: how often it was set.
    Signal(u64),
    /// Page fault at an address on a card.
    PageFault { address: u64, gpu_id: u32 },
    /// A card was reset.
    Reset { gpu_id: u32 },
}

/// Outcome of a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The events came: a report of each, `None` for one that did not come.
    Complete(Vec<Option<Report>>),
    /// The time passed.
    Timeout,
    /// An event was destroyed, or the machine ended.
    Fail,
    /// There is no event of one of the numbers.
    Unknown,
}

#[derive(Debug)]
struct Event {
    kind: u32,
    auto_reset: bool,
    set: bool,
    age: u64,
    fault: Option<Report>,
}

#[derive(Debug)]
struct Waiter {
    /// The events, and whether each has come.
    events: Vec<(u32, bool)>,
    all: bool,
    failed: bool,
}

impl Waiter {
    fn is_done(&self) -> bool {
        let mut come = self.events.iter().map(|e| e.1);
        self.failed || self.events.is_empty() || if self.all { come.all(|c| c) } else { come.any(|c| c) }
    }
}

#[derive(Debug, Default)]
struct State {
    events: BTreeMap<u32, Event>,
    waiters: BTreeMap<u64, Waiter>,
    next_waiter: u64,
    closed: bool,
}

impl State {
    fn set(&mut self, id: u32) -> bool {
        let Some(event) = self.events.get_mut(&id) else { return false };
        let mut waited = false;
        // Those for whom it has come already wait for it no longer.
        for (_, come) in self.waiters.values_mut().flat_map(|w| &mut w.events).filter(|e| **e == (id, false))
        {
            *come = true;
            waited = true;
        }
        event.set = !event.auto_reset || !waited;
        event.age += 1;
        true
    }
}

/// The events of a process.
#[derive(Debug, Default)]
pub(crate) struct Events {
    state: Mutex<State>,
    changed: Condvar,
    late: AtomicU64,
}

impl Events {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates an event; `None` if there are too many. The number is also that of its slot.
    pub(crate) fn create(&self, kind: u32, auto_reset: bool) -> Option<u32> {
        let mut state = self.state();
        // 0 is no event for the runtime.
        let id = (1..MOST as u32).find(|id| !state.events.contains_key(id))?;
        state.events.insert(id, Event { kind, auto_reset, set: false, age: 1, fault: None });
        Some(id)
    }

    /// Destroys an event and ends the waits for it; false if there is none.
    pub(crate) fn destroy(&self, id: u32) -> bool {
        let mut state = self.state();
        for waiter in state.waiters.values_mut().filter(|w| w.events.iter().any(|e| e.0 == id)) {
            waiter.failed = true;
        }
        self.changed.notify_all();
        state.events.remove(&id).is_some()
    }

    /// Sets an event; false if there is none.
    pub(crate) fn set(&self, id: u32) -> bool {
        let mut state = self.state();
        let found = state.set(id);
        self.changed.notify_all();
        found
    }

    /// Resets an event; false if there is none.
    pub(crate) fn reset(&self, id: u32) -> bool {
        self.state().events.get_mut(&id).map(|event| event.set = false).is_some()
    }

    /// Sets all events of the fault's kind, with its description.
    pub(crate) fn fault(&self, report: Report) {
        let kind = match report {
            Report::PageFault { .. } => abi::event::MEMORY,
            Report::Reset { .. } => abi::event::HARDWARE,
            Report::Signal(_) => return,
        };
        let mut state = self.state();
        let ids: Vec<u32> = state.events.iter().filter(|(_, e)| e.kind == kind).map(|(id, _)| *id).collect();
        for id in ids {
            if let Some(event) = state.events.get_mut(&id) {
                event.fault = Some(report);
            }
            state.set(id);
        }
        self.changed.notify_all();
    }

    /// Waits for one or all of some events: their numbers, and the ages that the caller knows (0: none). An
    /// event that is older than the known age has come. Without a time limit, it waits until the machine ends.
    pub(crate) fn wait(&self, events: &[(u32, u64)], all: bool, limit: Option<Duration>) -> Outcome {
        let until = limit.map(|limit| Instant::now() + limit);
        let mut state = self.state();
        let Some(me) = begin(&mut state, events, all) else { return Outcome::Unknown };
        let mut woken = true;
        loop {
            let closed = state.closed;
            let done = state.waiters.get(&me).is_none_or(Waiter::is_done);
            let now = Instant::now();
            if done || closed || until.is_some_and(|until| now >= until) {
                self.late.fetch_add(u64::from(done && !woken), Relaxed);
                return end(&mut state, me, done && !closed);
            }
            let sleep = until.map_or(SLICE, |until| SLICE.min(until - now));
            let (back, slept) =
                self.changed.wait_timeout(state, sleep).unwrap_or_else(PoisonError::into_inner);
            (state, woken) = (back, !slept.timed_out());
        }
    }

    /// Ends all waits, and those to come.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// Returns how many waits ended because a waiter looked again, not because it was woken: lost wake-ups.
    pub(crate) fn late(&self) -> u64 {
        self.late.load(Relaxed)
    }
}

/// Registers a waiter; `None` if one of the events does not exist.
fn begin(state: &mut State, events: &[(u32, u64)], all: bool) -> Option<u64> {
    if events.iter().any(|e| !state.events.contains_key(&e.0)) {
        return None;
    }
    let mut come = Vec::with_capacity(events.len());
    for &(id, age) in events {
        let Some(event) = state.events.get_mut(&id) else { continue };
        // Only signals have ages.
        let is_older = age > 0 && age != event.age && event.kind == abi::event::SIGNAL;
        come.push((id, event.set || is_older));
        event.set &= !event.auto_reset;
    }
    let me = state.next_waiter;
    state.next_waiter += 1;
    state.waiters.insert(me, Waiter { events: come, all, failed: false });
    Some(me)
}

/// Removes a waiter and returns the outcome of its wait.
fn end(state: &mut State, me: u64, done: bool) -> Outcome {
    let Some(waiter) = state.waiters.remove(&me) else { return Outcome::Fail };
    if waiter.failed || state.closed {
        return Outcome::Fail;
    }
    if !done {
        return Outcome::Timeout;
    }
    let describe = |&(id, come): &(u32, bool)| {
        let event = state.events.get(&id).filter(|_| come)?;
        Some(event.fault.unwrap_or(Report::Signal(event.age)))
    };
    Outcome::Complete(waiter.events.iter().map(describe).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const SIGNAL: u32 = 0;

    #[test]
    fn an_event_stays_set_until_somebody_waits() {
        let events = Events::default();
        let id = events.create(SIGNAL, true).unwrap();
        assert!(events.set(id));
        assert_eq!(events.wait(&[(id, 0)], false, None), Outcome::Complete(vec![Some(Report::Signal(2))]));
        assert_eq!(events.wait(&[(id, 0)], false, Some(Duration::ZERO)), Outcome::Timeout);
        let manual = events.create(SIGNAL, false).unwrap();
        events.set(manual);
        for _ in 0..2 {
            assert!(matches!(events.wait(&[(manual, 0)], false, None), Outcome::Complete(_)));
        }
        assert!(events.reset(manual));
        assert_eq!(events.wait(&[(manual, 0)], true, Some(Duration::ZERO)), Outcome::Timeout);
    }

    #[test]
    fn one_or_all() {
        let events = Events::default();
        let ids = [0; 2].map(|_| events.create(SIGNAL, true).unwrap());
        let both = ids.map(|id| (id, 0));
        events.set(ids[1]);
        assert_eq!(events.wait(&both, true, Some(Duration::ZERO)), Outcome::Timeout);
        events.set(ids[1]);
        assert_eq!(events.wait(&both, false, None), Outcome::Complete(vec![None, Some(Report::Signal(3))]));
        assert_eq!(events.wait(&[(99, 0)], false, None), Outcome::Unknown);
    }

    #[test]
    fn an_age_that_passed_has_come() {
        let events = Events::default();
        let id = events.create(SIGNAL, true).unwrap();
        let wait = |age| events.wait(&[(id, age)], false, Some(Duration::ZERO));
        assert_eq!(wait(1), Outcome::Timeout);
        events.set(id);
        assert_eq!(wait(2), Outcome::Complete(vec![Some(Report::Signal(2))]), "set");
        assert_eq!(wait(1), Outcome::Complete(vec![Some(Report::Signal(2))]), "older than known");
        assert_eq!(wait(2), Outcome::Timeout);
    }

    #[test]
    fn a_fault_is_told_to_all_who_wait_for_its_kind() {
        let events = Arc::new(Events::default());
        let id = events.create(abi::event::MEMORY, false).unwrap();
        let other = events.create(abi::event::HARDWARE, false).unwrap();
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let events = events.clone();
                std::thread::spawn(move || events.wait(&[(id, 0), (other, 0)], false, None))
            })
            .collect();
        let report = Report::PageFault { address: 0x7000, gpu_id: 5 };
        events.fault(report);
        for thread in threads {
            assert_eq!(thread.join().unwrap(), Outcome::Complete(vec![Some(report), None]));
        }
    }

    #[test]
    fn waits_end_with_their_event_and_with_the_machine() {
        let events = Arc::new(Events::default());
        let [gone, kept] = [0; 2].map(|_| events.create(SIGNAL, true).unwrap());
        let wait = |id| {
            let events = events.clone();
            std::thread::spawn(move || events.wait(&[(id, 0)], false, None))
        };
        let (first, second) = (wait(gone), wait(kept));
        while events.state().waiters.len() < 2 {
            std::thread::yield_now();
        }
        assert!(events.destroy(gone) && !events.destroy(gone));
        assert_eq!(first.join().unwrap(), Outcome::Fail);
        events.close();
        assert_eq!(second.join().unwrap(), Outcome::Fail);
        assert_eq!(events.wait(&[(kept, 0)], false, None), Outcome::Fail);
    }

    /// An event that is set again before its waiter has run stays set for the next wait.
    #[test]
    fn an_event_that_comes_twice_is_not_swallowed() {
        let events = Events::default();
        let ids = [0; 2].map(|_| events.create(SIGNAL, true).unwrap());
        let me = begin(&mut events.state(), &ids.map(|id| (id, 0)), true).unwrap();
        events.set(ids[0]);
        events.set(ids[0]);
        assert_eq!(end(&mut events.state(), me, false), Outcome::Timeout);
        let outcome = events.wait(&[(ids[0], 0)], false, Some(Duration::ZERO));
        assert_eq!(outcome, Outcome::Complete(vec![Some(Report::Signal(3))]));
    }

    /// Two threads hand a token to each other 10,000 times, as the queue's thread and the runtime's do: the signal
    /// is written, then the event set; the reader looks at the signal, then waits.
    #[test]
    fn no_wake_up_is_lost() {
        const TURNS: u64 = 10_000;
        let events = Arc::new(Events::default());
        let value = Arc::new(AtomicU64::new(0));
        let ids = [0; 2].map(|_| events.create(SIGNAL, true).unwrap());
        let side = |mine: u64| {
            let (events, value) = (events.clone(), value.clone());
            std::thread::spawn(move || {
                for turn in (mine..TURNS).step_by(2) {
                    while value.load(std::sync::atomic::Ordering::Acquire) != turn {
                        let outcome = events.wait(&[(ids[mine as usize], 0)], false, None);
                        assert!(matches!(outcome, Outcome::Complete(_)), "{outcome:?}");
                    }
                    value.store(turn + 1, std::sync::atomic::Ordering::Release);
                    events.set(ids[1 - mine as usize]);
                }
            })
        };
        [side(0), side(1)].into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((value.load(Relaxed), events.late()), (TURNS, 0));
    }
}
