//! Events through the ioctls, by the rules of `kfd_events.c`.

use crate::thunk::{AQL, Kernel, PAGE, Program, Thunk, USERPTR, until};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

const SIGNAL: u32 = 0;
const COMPLETE: u32 = 0;
const TIMEOUT: u32 = 1;
const FAIL: u32 = 2;

fn set(thunk: &Thunk, id: u32) -> Result<(), i32> {
    thunk.ioctl(0x0a, &mut [id.into()])
}

fn outcome(thunk: &Thunk, ids: &[u32], all: bool, ms: u32) -> (Result<(), i32>, u32) {
    let events: Vec<(u32, u64)> = ids.iter().map(|&id| (id, 0)).collect();
    let (answer, result, _) = thunk.wait(&events, all, ms);
    (answer, result)
}

#[test]
fn one_of_them_or_all() {
    let thunk = Thunk::new(&[]);
    let ids = [0; 3].map(|_| thunk.event(SIGNAL, false));
    assert_eq!(outcome(&thunk, &ids, false, 0), (Ok(()), TIMEOUT));
    set(&thunk, ids[1]).unwrap();
    assert_eq!(outcome(&thunk, &ids, false, u32::MAX), (Ok(()), COMPLETE));
    assert_eq!(outcome(&thunk, &ids, true, 5), (Ok(()), TIMEOUT));
    set(&thunk, ids[0]).unwrap();
    set(&thunk, ids[2]).unwrap();
    assert_eq!(outcome(&thunk, &ids, true, u32::MAX), (Ok(()), COMPLETE));
    assert_eq!(thunk.ioctl(0x0b, &mut [ids[0].into()]), Ok(()), "reset");
    assert_eq!(outcome(&thunk, &ids, true, 0), (Ok(()), TIMEOUT));
    assert_eq!(outcome(&thunk, &[], true, 0), (Ok(()), COMPLETE), "none");
}

#[test]
fn a_timeout_is_as_long_as_it_says() {
    let thunk = Thunk::new(&[]);
    let id = thunk.event(SIGNAL, true);
    let start = Instant::now();
    assert_eq!(outcome(&thunk, &[id], false, 60), (Ok(()), TIMEOUT));
    assert!(start.elapsed() >= Duration::from_millis(60) && start.elapsed() < Duration::from_secs(20));
}

#[test]
fn numbers_that_are_no_events() {
    let thunk = Thunk::new(&[]);
    let id = thunk.event(SIGNAL, true);
    assert_eq!(outcome(&thunk, &[id, 4000], false, 0), (Err(libc::EINVAL), FAIL));
    for number in [0x09, 0x0a, 0x0b] {
        assert_eq!(thunk.ioctl(number, &mut [4000]), Err(libc::EINVAL), "{number:#x}");
    }
    assert_eq!(thunk.ioctl(0x09, &mut [id.into()]), Ok(()));
    assert_eq!(set(&thunk, id), Err(libc::EINVAL));
    // As many as slots of the page; then none; then again.
    let ids: Vec<u32> = (1..4096).map(|_| thunk.event(SIGNAL, true)).collect();
    assert_eq!(thunk.ioctl(0x08, &mut [0; 4]), Err(libc::ENOSPC));
    assert_eq!(thunk.ioctl(0x09, &mut [ids[7].into()]), Ok(()));
    assert_eq!(thunk.event(SIGNAL, true), ids[7]);
}

/// Ages, from 1.14 on: a wait for an event that is older than known does not sleep, however often others took it.
#[test]
fn ages_tell_what_others_took() {
    for (minor, has_ages) in [("1.13", false), ("1.14", true)] {
        let thunk = Thunk::new(&[("ABI", minor)]);
        let id = thunk.event(SIGNAL, true);
        set(&thunk, id).unwrap();
        let (_, result, reported) = thunk.wait(&[(id, 1)], false, 0);
        assert_eq!((result, reported[0][0]), (COMPLETE, if has_ages { 2 } else { 1 }));
        // It was taken. Who knows age 1 only is reported again; who knows age 2 waits.
        assert_eq!(thunk.wait(&[(id, 1)], false, 0).1, if has_ages { COMPLETE } else { TIMEOUT });
        assert_eq!(thunk.wait(&[(id, 2)], false, 0).1, TIMEOUT);
    }
}

#[test]
fn a_wait_ends_when_its_event_is_destroyed() {
    let thunk = Thunk::new(&[]);
    let [gone, kept] = [0; 2].map(|_| thunk.event(SIGNAL, true));
    let begun = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            begun.store(true, SeqCst);
            outcome(&thunk, &[kept, gone], false, u32::MAX)
        });
        until("the thread", || begun.load(SeqCst));
        // It sleeps by now, or will find no event: it ends in both cases.
        std::thread::sleep(Duration::from_millis(30));
        thunk.ioctl(0x09, &mut [gone.into()]).unwrap();
        let (answer, result) = first.join().unwrap();
        assert!(matches!(answer, Err(libc::EIO | libc::EINVAL)), "{answer:?}");
        assert_eq!(result, FAIL);
    });
}

/// Every thread that waits for an event is woken by it.
#[test]
fn all_waiters_are_woken() {
    let thunk = Thunk::new(&[]);
    let [id, other] = [0; 2].map(|_| thunk.event(SIGNAL, false));
    std::thread::scope(|scope| {
        let threads = [(); 4].map(|()| scope.spawn(|| outcome(&thunk, &[other, id], false, u32::MAX)));
        set(&thunk, id).unwrap();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), (Ok(()), COMPLETE));
        }
    });
}

#[test]
fn an_injected_error_is_answered_once() {
    let thunk = Thunk::new(&[("FAULT", "WAIT_EVENTS:2:errno=4,CREATE_EVENT:2+:errno=12")]);
    let id = thunk.event(SIGNAL, false);
    set(&thunk, id).unwrap();
    let answers = [(); 3].map(|()| outcome(&thunk, &[id], false, 0).0);
    assert_eq!(answers, [Ok(()), Err(libc::EINTR), Ok(())]);
    assert_eq!([(); 2].map(|()| thunk.ioctl(0x08, &mut [0; 4])), [Err(libc::ENOMEM); 2]);
}

/// The page of slots: it is taken once, cannot be freed, and says which events an interrupt is for.
#[test]
fn slots_say_which_events_have_come() {
    let thunk = Thunk::new(&[]);
    let (page, other) = (thunk.gtt(8 * PAGE), thunk.gtt(8 * PAGE));
    let at = Thunk::reserve(PAGE);
    let (process, _) = thunk.allocate(at, PAGE, 0, USERPTR, at).unwrap();
    let create = |handle: u64| {
        let mut a = [handle, 0, 0, 0];
        thunk.ioctl(0x08, &mut a).map(|()| a[3] as u32)
    };
    assert_eq!([99, process].map(create), [Err(libc::EINVAL); 2], "no memory, and memory of the process");
    let ids = [page.handle, 0, 0].map(|handle| create(handle).unwrap());
    assert_eq!(create(other.handle), Err(libc::EBUSY));
    assert_eq!((thunk.free(page.handle), thunk.free(other.handle)), (Err(libc::EPERM), Ok(())));
    let slot = |id: u32| 8 * u64::from(id);
    assert!(ids.iter().all(|&id| page.get(slot(id)) == u64::MAX));

    let (queue, program) = (thunk.queue(0, AQL), Program::new(&thunk, 0, Kernel::Interrupt));
    let raise = |slots: &[u32], id: u32| {
        slots.iter().for_each(|&id| page.set(slot(id), id.into()));
        queue.packet(program.launch(1, [id.into(), 0], None));
        queue.drain();
        let set = ids.map(|id| {
            let set = outcome(&thunk, &[id], false, 0).1 == COMPLETE;
            thunk.ioctl(0x0b, &mut [id.into()]).unwrap();
            set
        });
        assert!(ids.iter().all(|&id| page.get(slot(id)) == u64::MAX || slots.len() > 1), "slots are emptied");
        set
    };
    assert_eq!(raise(&[ids[1]], ids[1]), [false, true, false]);
    assert_eq!(raise(&[], ids[1]), [false; 3], "nobody has written the slot");
    // Lower bits of a number that are none of an event, and none at all: all events whose slots are written.
    assert_eq!(raise(&[ids[2]], 200), [false, false, true]);
    assert_eq!(raise(&[ids[0], ids[2]], 0), [true, false, true]);
}
