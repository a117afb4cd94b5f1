//! Signals and interrupts across two queues and two threads of the process.

use crate::thunk::{AQL, Signal, Thunk, barrier};
use std::time::{Duration, Instant};

/// Two threads and two queues pass a token round: a thread rings, its queue completes a signal that the other queue's
/// barrier waits for, and that one's interrupt wakes the other thread. Nothing may be lost: a wait that ends because
/// the waiter looked again, and not because it was woken, would be counted.
///
/// `VIRTUAL_KFD_ROUNDS` sets the rounds; without it, the test takes two seconds.
#[test]
fn no_signal_and_no_interrupt_is_lost() {
    let rounds: Option<u64> = std::env::var("VIRTUAL_KFD_ROUNDS").ok().map(|n| n.parse().unwrap());
    let counts = tempfile::NamedTempFile::new().unwrap();
    let thunk = Thunk::new(&[("COUNTS", counts.path().to_str().unwrap())]);
    let events = [0; 2].map(|_| thunk.event(0, true));
    let hidden = thunk.signal(0);
    let seen: Vec<Signal> = (0..2).map(|_| thunk.signal(0)).collect();
    (0..2).for_each(|i| seen[i].raises(events[i]));
    let end = Instant::now() + Duration::from_secs(2);
    let goes_on = |round: u64| rounds.map_or_else(|| Instant::now() < end, |n| round < n);
    // Waits as a runtime does: it looks at the value, then sleeps for the event, here with a limit.
    let wait = |side: usize| {
        while seen[side].value() != 0 {
            let (answer, result, _) = thunk.wait(&[(events[side], 0)], false, 30_000);
            assert_eq!((answer, result), (Ok(()), 0), "lost at side {side}");
        }
    };
    let total = std::thread::scope(|scope| {
        // Queues are used by one thread each. Side 0 begins a round, side 1 answers.
        let (to, from) = std::sync::mpsc::channel::<bool>();
        let answers = scope.spawn({
            let (hidden, seen, thunk, wait) = (&hidden, &seen, &thunk, &wait);
            move || {
                let queue = thunk.queue(0, AQL);
                while from.recv().unwrap() {
                    // Waits for the other queue's signal, then tells both threads.
                    queue.packet(barrier(3, &[hidden], Some(&seen[1])));
                    wait(1);
                    queue.packet(barrier(5, &[hidden], Some(&seen[0])));
                }
            }
        });
        let (queue, mut round) = (thunk.queue(0, AQL), 0);
        while goes_on(round) {
            hidden.set(1);
            (0..2).for_each(|i| seen[i].set(1));
            to.send(true).unwrap();
            queue.packet(barrier(3, &[], Some(&hidden)));
            wait(0);
            round += 1;
        }
        to.send(false).unwrap();
        answers.join().unwrap();
        round
    });
    thunk.driver.write_counts();
    let text = std::fs::read_to_string(counts.path()).unwrap();
    println!("{total} rounds");
    assert!(total > 10, "{total} rounds");
    assert!(text.contains("wait\tlost wake-ups\t0\n"), "{text}");
}
