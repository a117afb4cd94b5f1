//! Threads that prepare checks while the device runs those before them.

use super::found::{Checked, Found, Stop};
use ggml_core::sync::lock;
use ggml_core::{Deadline, Error, Result};
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Condvar, Mutex, PoisonError};

type Job = Box<dyn FnOnce() + Send>;

/// Something that another thread prepares.
pub(super) struct Promise<T>(Receiver<Result<T>>);

impl<T> Promise<T> {
    /// Waits until it is prepared.
    pub(super) fn wait(self, deadline: &Deadline) -> Checked<T> {
        match self.0.recv_timeout(deadline.remaining()) {
            Ok(prepared) => Ok(prepared?),
            Err(RecvTimeoutError::Timeout) => Err(Stop::Found(Found::Late)),
            Err(RecvTimeoutError::Disconnected) => Err(Error::argument("a check", "a panic", "none").into()),
        }
    }
}

/// Jobs that wait, in the order in which their results are needed.
#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Jobs that are done after all others, even once the queue is closed.
    late: Vec<Job>,
    closed: bool,
}

/// Threads with a queue of jobs.
#[derive(Default)]
pub(super) struct Workers {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Workers {
    /// Calls a function while threads do the jobs that it queues. Jobs that have not begun when it returns are left out,
    /// except late ones.
    pub(super) fn during<T>(threads: usize, run: impl FnOnce(&Workers) -> T) -> T {
        let workers = Workers::default();
        std::thread::scope(|scope| {
            let closing = Closing(&workers);
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(|| workers.work())).collect();
            let done = run(&workers);
            drop(closing);
            // A panic in a job is an error of the check that waits for it.
            threads.into_iter().for_each(|thread| drop(thread.join()));
            done
        })
    }

    /// Queues the preparation of something.
    pub(super) fn promise<T: Send + 'static>(
        &self,
        prepare: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Promise<T> {
        let (job, promise) = promised(prepare);
        self.queue(|jobs| jobs.push_back(job));
        promise
    }

    /// Has something prepared before everything else that waits: it is needed first.
    pub(super) fn promise_first<T: Send + 'static>(
        &self,
        prepare: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Promise<T> {
        let (job, promise) = promised(prepare);
        self.queue(|jobs| jobs.push_front(job));
        promise
    }

    /// Has something done before everything else that waits: it takes long.
    pub(super) fn early(&self, job: impl FnOnce() + Send + 'static) {
        self.queue(|jobs| jobs.push_front(Box::new(job)));
    }

    /// Has something done after everything else that waits, by several threads at the end at the latest.
    pub(super) fn late(&self, job: impl FnOnce() + Send + 'static) {
        lock(&self.queue).late.push(Box::new(job));
        self.changed.notify_one();
    }

    fn queue(&self, add: impl FnOnce(&mut VecDeque<Job>)) {
        add(&mut lock(&self.queue).jobs);
        self.changed.notify_one();
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            job();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = lock(&self.queue);
        loop {
            let job = queue.jobs.pop_front().or_else(|| queue.late.pop());
            if job.is_some() || queue.closed {
                return job;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Returns a job that prepares something, and where its result arrives.
fn promised<T: Send + 'static>(prepare: impl FnOnce() -> Result<T> + Send + 'static) -> (Job, Promise<T>) {
    let (sender, receiver) = sync_channel(1);
    // Nobody may want the result any more.
    (Box::new(move || drop(sender.send(prepare()))), Promise(receiver))
}

/// Closes the queue when it is dropped.
struct Closing<'a>(&'a Workers);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let mut queue = lock(&self.0.queue);
        queue.closed = true;
        queue.jobs.clear();
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ggml_core::Phase;
    use std::time::Duration;

    fn soon() -> Deadline {
        Deadline::new(Phase::Compute, Duration::from_secs(20))
    }

    #[test]
    fn results_come_from_other_threads() {
        let here = std::thread::current().id();
        let sum = Workers::during(2, |workers| {
            let promises: Vec<_> =
                (0..100).map(|i| workers.promise(move || Ok((i, std::thread::current().id())))).collect();
            let values = promises.into_iter().map(|promise| promise.wait(&soon()).ok().unwrap());
            values.map(|(i, thread)| if thread == here { 0 } else { i }).sum::<i32>()
        });
        assert_eq!(sum, 4950);
    }

    /// Returns the order in which a single thread does jobs.
    fn in_order() -> std::sync::Arc<Mutex<Vec<u32>>> {
        Workers::during(1, |workers| {
            let (go, begin) = sync_channel::<()>(0);
            let order = std::sync::Arc::new(Mutex::new(Vec::new()));
            let note = |n: u32| {
                let order = order.clone();
                move || {
                    lock(&order).push(n);
                    Ok(())
                }
            };
            // Keeps the only thread until everything is queued.
            let held = workers.promise(move || {
                begin.recv().unwrap();
                Ok(())
            });
            let late = order.clone();
            workers.late(move || lock(&late).push(3));
            let (one, two) = (workers.promise(note(1)), workers.promise(note(2)));
            let first = workers.promise_first(note(0));
            go.send(()).unwrap();
            for promise in [held, one, two, first] {
                promise.wait(&soon()).ok().unwrap();
            }
            order
        })
    }

    #[test]
    fn what_is_needed_first_is_done_first() {
        let order = in_order();
        assert_eq!(*lock(&order), [0, 1, 2, 3], "late jobs are done although the queue was closed");
    }

    /// An error, a panic and time that runs out are told apart, and none of them keeps the threads.
    #[test]
    fn whoever_waits_learns_the_reason() {
        Workers::during(2, |workers| {
            let failed = workers.promise(|| Err::<(), _>(Error::argument("a", "b", "c")));
            assert!(matches!(failed.wait(&soon()), Err(Stop::Failed(Error::InvalidArgument { .. }))));
            let panicked = workers.promise(|| -> Result<()> { panic!("planted") });
            assert!(matches!(panicked.wait(&soon()), Err(Stop::Failed(_))));
            let slow = workers.promise(|| {
                std::thread::sleep(Duration::from_millis(200));
                Ok(())
            });
            let now = Deadline::new(Phase::Compute, Duration::from_millis(1));
            assert!(matches!(slow.wait(&now), Err(Stop::Found(Found::Late))));
        });
    }
}
