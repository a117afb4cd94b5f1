//! Queues of packets: kernels, barriers, commands, signals.

use crate::thunk::{
    AQL, GTT, Kernel, Memory, PAGE, Program, RING_BYTES, Ring, SDMA, Signal, Thunk, VRAM, barrier, create,
    pair,
};
use std::time::Duration;

#[test]
fn kernels_run_and_tell_their_times() {
    for cards in ["mi50", "vega56"] {
        let thunk = Thunk::new(&[("CARDS", cards)]);
        let (queue, program) = (thunk.queue(0, AQL), Program::new(&thunk, 0, Kernel::Count));
        let (data, event) = (thunk.memory(PAGE, 0, VRAM), thunk.event(0, true));
        let signals = [1, 5].map(|value| thunk.signal(value));
        signals[1].raises(event);
        let clock = || {
            let mut a = [0, 0, 0, 0, u64::from(virtual_kfd::topology::gpu_id(0))];
            thunk.ioctl(0x05, &mut a).unwrap();
            a[0]
        };
        let before = clock();
        for signal in &signals {
            queue.packet(program.launch(200, [data.at, 0], Some(signal)));
        }
        assert_eq!(thunk.wait(&[(event, 0)], true, 30_000).1, 0);
        assert_eq!((signals[0].value(), signals[1].value(), signals[1].mailbox()), (0, 4, event.into()));
        assert_eq!(data.get(0), 400);
        let ([a, b], [c, d]) =
            ([signals[0].times().0, signals[0].times().1], [signals[1].times().0, signals[1].times().1]);
        assert!(before <= a && a <= b && b <= c && c <= d && d <= clock(), "{before} {a} {b} {c} {d}");
        // More than the ring has room for.
        for _ in 0..3 * RING_BYTES / 64 {
            queue.packet(barrier(3, &[], None));
        }
        queue.drain();
        assert_eq!(queue.destroy(), Ok(()));
        assert_eq!((queue.destroy(), queue.update(100)), (Err(libc::EINVAL), Err(libc::EINVAL)));
    }
}

fn stays(signal: &Signal, value: i64) {
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(signal.value(), value);
}

#[test]
fn barriers_wait_for_all_or_for_one() {
    let thunk = Thunk::new(&[]);
    let queue = thunk.queue(0, AQL);
    let [a, b, done] = [1; 3].map(|value| thunk.signal(value));
    queue.packet(barrier(3, &[&a, &b], Some(&done)));
    stays(&done, 1);
    a.set(0);
    stays(&done, 1);
    b.set(0);
    done.until(0);
    [&a, &b, &done].iter().for_each(|signal| signal.set(1));
    queue.packet(barrier(5, &[&a, &b], Some(&done)));
    stays(&done, 1);
    b.set(0);
    done.until(0);
    queue.drain();
}

/// `hsa_amd_barrier_value_packet_t`: equal, not equal, less, greater or equal, under a mask.
#[test]
fn barriers_compare_values() {
    let thunk = Thunk::new(&[]);
    let queue = thunk.queue(0, AQL);
    for (condition, not_yet, met) in [(0, 6, 7), (1, 7, 8), (2, 7, -3), (3, -1, 9)] {
        let (signal, done) = (thunk.signal(not_yet), thunk.signal(1));
        queue.packet([2 << 16, signal.at(), 7, u64::MAX, condition, 0, 0, done.at()]);
        stays(&done, 1);
        signal.set(met);
        done.until(0);
    }
    let (signal, done) = (thunk.signal(0xff7), thunk.signal(1));
    queue.packet([2 << 16, signal.at(), 7, 0xf, 0, 0, 0, done.at()]);
    done.until(0);
}

/// Sends commands of the packet processor in a buffer.
fn commands(thunk: &Thunk, queue: &Ring<'_>, words: &[u32], done: &Signal) -> Memory {
    let buffer = thunk.gtt(PAGE);
    for (i, two) in words.chunks(2).enumerate() {
        buffer.set(8 * i as u64, pair(two[0], two.get(1).copied().unwrap_or(0)));
    }
    // Format 1: a jump to the buffer (`INDIRECT_BUFFER`), its address and its words.
    let (low, high) = (buffer.at as u32, (buffer.at >> 32) as u32);
    let jump = 3u32 << 30 | 2 << 16 | 0x3f << 8;
    queue.packet([
        1 << 16 | u64::from(jump) << 32,
        pair(low, high),
        words.len() as u64,
        10,
        0,
        0,
        0,
        done.at(),
    ]);
    buffer
}

fn header(opcode: u32, words: u32) -> u32 {
    3 << 30 | (words - 1) << 16 | opcode << 8
}

#[test]
fn commands_write_add_and_wait() {
    let thunk = Thunk::new(&[]);
    let (queue, data, done) = (thunk.queue(0, AQL), thunk.gtt(PAGE), thunk.signal(1));
    data.set(8, 40);
    let at = |offset: u64| [(data.at + offset) as u32, ((data.at + offset) >> 32) as u32];
    let mut words = vec![header(0x37, 5), 0, at(0)[0], at(0)[1], 11, 22];
    words.extend([header(0x1e, 8), 47, at(8)[0], at(8)[1], 2, 0, 0, 0, 0]);
    words.extend([header(0x1e, 8), 39, at(16)[0], at(16)[1], 5, 6, 0, 0, 0]);
    words.extend([header(0x3c, 6), 3 | 1 << 4, at(24)[0], at(24)[1], 9, 0xff, 4]);
    words.extend([header(0x37, 4), 0, at(32)[0], at(32)[1], 1]);
    words.extend([header(0x58, 6), 0, 0, 0, 0, 0, 0]);
    commands(&thunk, &queue, &words, &done);
    // What comes before the command that waits is done once, what comes after it not yet.
    stays(&done, 1);
    assert_eq!([0, 8, 16, 32].map(|at| data.get(at)), [pair(11, 22), 42, pair(5, 6), 0]);
    data.set(24, 0x109);
    done.until(0);
    assert_eq!([0, 8, 16, 32].map(|at| data.get(at)), [pair(11, 22), 42, pair(5, 6), 1]);
}

#[test]
fn packets_that_nobody_knows_end_the_queue() {
    let thunk = Thunk::new(&[]);
    for packet in [[9, 0, 0, 0, 0, 0, 0, 0], [7 << 16, 0, 0, 0, 0, 0, 0, 0], [1 << 16, 0, 0, 0, 0, 0, 0, 0]] {
        let (queue, failed, event) = (thunk.queue(0, AQL), thunk.signal(0), thunk.event(0, false));
        failed.raises(event);
        queue.fails_to(&failed);
        queue.packet(packet);
        assert_eq!(thunk.wait(&[(event, 0)], false, 30_000).1, 0);
        assert_eq!(failed.value(), 0x2000_0000);
        assert_eq!((queue.done(), queue.destroy()), (0, Ok(())));
    }
}

#[test]
fn a_queue_without_a_share_stands_still() {
    let thunk = Thunk::new(&[]);
    let (queue, done) = (thunk.queue(0, AQL), thunk.signal(2));
    assert_eq!(queue.update(0), Ok(()));
    queue.packet(barrier(3, &[], Some(&done)));
    stays(&done, 2);
    assert_eq!(queue.update(101), Err(libc::EINVAL));
    assert_eq!(queue.update(100), Ok(()));
    done.until(1);
}

#[test]
fn queues_that_cannot_be() {
    let thunk = Thunk::new(&[("COPY_ENGINES", "0")]);
    let memory = thunk.memory(4 * PAGE, 0, GTT);
    let good = create(&memory, 0, AQL);
    for (what, word, value) in [
        ("a ring that is not aligned", 0, good[0] + 64),
        ("no read index", 2, 0),
        ("a write index that is not aligned", 1, good[1] + 1),
        ("a size that is no power of two", 4, good[4] + 64),
        ("another card", 4, pair(RING_BYTES as u32, 5)),
        ("another kind", 5, pair(9, 100)),
        ("a copy engine that the card lacks", 5, pair(SDMA, 100)),
        ("too large a share", 5, pair(AQL, 101)),
        ("too high a priority", 6, 16),
    ] {
        let mut a = good;
        a[word] = value;
        assert_eq!(thunk.ioctl(0x02, &mut a), Err(libc::EINVAL), "{what}");
    }
    // As many as doorbells. They end with the machine.
    let mut created = 0;
    let answer = loop {
        match thunk.ioctl(0x02, &mut { good }) {
            Ok(()) => created += 1,
            Err(errno) => break errno,
        }
        if created == 40 {
            break 0;
        }
    };
    assert_eq!((created, answer), (40, 0));
}

/// A kernel that runs is waited for; one that goes on is given up, and never touches the ring again.
#[test]
fn destroyed_while_its_kernel_runs() {
    let thunk = Thunk::new(&[]);
    let (data, program) = (thunk.gtt(PAGE), Program::new(&thunk, 0, Kernel::Spin));
    let (queue, done) = (thunk.queue(0, AQL), thunk.signal(1));
    queue.packet(program.launch(1, [data.at, 1], Some(&done)));
    std::thread::sleep(Duration::from_millis(20));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            data.set(0, 1);
        });
        assert_eq!(queue.destroy(), Ok(()));
    });
    let (queue, value) = (thunk.queue(0, AQL), done.value());
    queue.packet(program.launch(1, [data.at, 2], Some(&done)));
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(queue.destroy(), Err(libc::ETIME));
    data.set(0, 2);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!((queue.done(), done.value()), (0, value));
}
