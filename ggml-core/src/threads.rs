//! Work that several threads share and that a caller waits for no longer than a deadline.

use crate::deadline::Deadline;
use crate::error::Result;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Weak};

/// Stack size in bytes of the threads. Drivers' compilers recurse deeply.
const STACK: usize = 16 << 20;

/// Reason why not everything was done.
#[derive(Debug)]
pub enum Undone {
    /// An item failed.
    Failed(crate::Error),
    /// The deadline passed. Threads that are busy go on, and begin nothing new.
    Late,
    /// A thread did not start, or ended without a result.
    NoThread(String),
}

/// Calls a function for each item on up to `threads` threads, which have the name `name`. Items are begun in their order.
///
/// # Errors
/// See [`Undone`]. After the first error no item is begun.
pub fn for_each<T: Send + Sync + 'static>(
    name: &str,
    threads: usize,
    items: &Arc<Vec<T>>,
    deadline: &Deadline,
    run: impl Fn(&T) -> Result<()> + Send + Sync + 'static,
) -> std::result::Result<(), Undone> {
    if items.is_empty() {
        return Ok(());
    }
    // The threads stop when this function returns: they own the items, but not the permission to begin one.
    let next = Arc::new(AtomicUsize::new(0));
    let run = Arc::new(run);
    let (sender, receiver) = channel();
    for _ in 0..threads.clamp(1, items.len()) {
        let (items, run, sender) = (items.clone(), run.clone(), sender.clone());
        let next: Weak<AtomicUsize> = Arc::downgrade(&next);
        let work = move || {
            while let Some(next) = next.upgrade() {
                let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                drop(next);
                if sender.send(run(item)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name(name.into()).stack_size(STACK);
        thread.spawn(work).map_err(|error| Undone::NoThread(error.to_string()))?;
    }
    drop(sender);
    for _ in 0..items.len() {
        match receiver.recv_timeout(deadline.remaining()) {
            Ok(done) => done.map_err(Undone::Failed)?,
            Err(RecvTimeoutError::Timeout) => return Err(Undone::Late),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Undone::NoThread("it ended without a result".into()));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, Phase};
    use std::sync::Mutex;
    use std::time::Duration;

    fn within(limit: Duration) -> Deadline {
        Deadline::new(Phase::Compile, limit)
    }

    #[test]
    fn each_item_is_done_once_by_several_threads() {
        let done = Arc::new(Mutex::new((Vec::new(), Vec::new())));
        let of_threads = done.clone();
        let items = Arc::new((0..40).collect::<Vec<u32>>());
        let run = move |&item: &u32| {
            std::thread::sleep(Duration::from_millis(1));
            let mut done = of_threads.lock().unwrap();
            done.0.push(item);
            done.1.push(std::thread::current().id());
            Ok(())
        };
        for_each("test", 3, &items, &within(Duration::from_secs(30)), run).unwrap();
        let (mut found, mut ids) = std::mem::take(&mut *done.lock().unwrap());
        found.sort_unstable();
        ids.sort_unstable_by_key(|id| format!("{id:?}"));
        ids.dedup();
        assert_eq!(found, **items);
        assert!((2..=3).contains(&ids.len()), "{ids:?}");
        assert!(for_each("test", 3, &Arc::new(vec![(); 0]), &within(Duration::ZERO), |()| Ok(())).is_ok());
    }

    #[test]
    fn the_caller_learns_why_it_was_not_done() {
        let items = Arc::new(vec![0u32, 1, 2]);
        let long = within(Duration::from_secs(30));
        let run = |&item: &u32| if item == 0 { Err(Error::argument("a", "b", "c")) } else { Ok(()) };
        assert!(matches!(for_each("test", 1, &items, &long, run), Err(Undone::Failed(_))));
        let panics = for_each("test", 1, &items, &long, |_| panic!("planted"));
        assert!(matches!(panics, Err(Undone::NoThread(_))));
        let begun = Arc::new(AtomicUsize::new(0));
        let of_threads = begun.clone();
        let slow = move |_: &u32| {
            of_threads.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(100));
            Ok(())
        };
        let late = for_each("test", 1, &items, &within(Duration::from_millis(10)), slow);
        assert!(matches!(late, Err(Undone::Late)));
        std::thread::sleep(Duration::from_millis(250));
        assert_eq!(begun.load(Ordering::Relaxed), 1, "what was not begun is left");
    }
}
