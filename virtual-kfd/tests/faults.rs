//! Faults by option, and faults of kernels: what a runtime sees.

use crate::thunk::{AQL, Kernel, Memory, PAGE, Program, Ring, SDMA, Signal, Thunk};
use std::time::{Duration, Instant};
use virtual_kfd::topology::gpu_id;

/// A machine with a queue, of which the second kernel is at fault, and events as a runtime has them.
struct Scene<'a> {
    thunk: &'a Thunk,
    queue: Ring<'a>,
    program: Program,
    data: Memory,
    done: Signal,
    failed: Signal,
    event: u32,
    events: [u32; 2],
}

impl<'a> Scene<'a> {
    fn new(thunk: &'a Thunk) -> Scene<'a> {
        let (queue, failed, event) = (thunk.queue(0, AQL), thunk.signal(0), thunk.event(0, true));
        failed.raises(thunk.event(0, true));
        queue.fails_to(&failed);
        let done = thunk.signal(3);
        done.raises(event);
        let (program, data) = (Program::new(thunk, 0, Kernel::Count), thunk.gtt(PAGE));
        let events = [8, 3].map(|kind| thunk.event(kind, false));
        Scene { thunk, queue, program, data, done, failed, event, events }
    }

    fn launch(&self, count: usize) {
        for _ in 0..count {
            self.queue.packet(self.program.launch(64, [self.data.at, 0], Some(&self.done)));
        }
    }

    /// Returns what the events of faults tell, after one of them has come or some time.
    fn reported(&self, ms: u32) -> (u32, Vec<[u64; 4]>) {
        let (_, result, reported) = self.thunk.wait(&self.events.map(|id| (id, 0)), false, ms);
        (result, reported)
    }
}

#[test]
fn a_queue_that_stands_still() {
    let thunk = Thunk::new(&[("FAULT", "dispatch:2:stall")]);
    let scene = Scene::new(&thunk);
    scene.launch(3);
    scene.done.until(2);
    assert_eq!(scene.reported(20).0, 1, "nothing is reported");
    assert_eq!((scene.queue.done(), scene.data.get(0), scene.queue.destroy()), (1, 64, Ok(())));
}

#[test]
fn a_page_fault() {
    let thunk = Thunk::new(&[("FAULT", "dispatch:2:page-fault")]);
    let scene = Scene::new(&thunk);
    scene.launch(3);
    let (result, reported) = scene.reported(30_000);
    assert_eq!((result, reported[0]), (0, [1, 0, 0x7ead_beef_0000, u64::from(gpu_id(0))]));
    assert_eq!((scene.done.value(), scene.failed.value(), scene.queue.destroy()), (2, 0, Ok(())));
}

#[test]
fn an_illegal_instruction() {
    let thunk = Thunk::new(&[("FAULT", "dispatch:2:illegal")]);
    let scene = Scene::new(&thunk);
    scene.launch(3);
    scene.failed.until(0x4000_0000);
    assert_eq!((scene.reported(0).0, scene.done.value(), scene.data.get(0)), (1, 2, 64));
}

#[test]
fn a_reset() {
    let thunk = Thunk::new(&[("FAULT", "dispatch:2:reset")]);
    let scene = Scene::new(&thunk);
    scene.launch(3);
    let (result, reported) = scene.reported(30_000);
    assert_eq!(result, 0);
    assert_eq!(reported[1][..2], [0, 1 | u64::from(gpu_id(0)) << 32], "memory is lost; after a hang");
    assert_eq!(scene.done.value(), 2);
}

#[test]
fn a_kernel_that_is_skipped() {
    let thunk = Thunk::new(&[("FAULT", "dispatch:2:skip")]);
    let scene = Scene::new(&thunk);
    scene.launch(3);
    scene.done.until(0);
    assert_eq!(scene.data.get(0), 128);
}

#[test]
fn a_completion_that_is_late() {
    let thunk = Thunk::new(&[("FAULT", "dispatch:2:late=80")]);
    let scene = Scene::new(&thunk);
    let start = Instant::now();
    scene.launch(3);
    scene.done.until(0);
    assert!(start.elapsed() >= Duration::from_millis(80));
    assert_eq!(scene.data.get(0), 192);
}

#[test]
fn an_interrupt_that_is_lost() {
    let thunk = Thunk::new(&[("FAULT", "dispatch:2:lost")]);
    let scene = Scene::new(&thunk);
    let wait = |ms| thunk.wait(&[(scene.event, 0)], false, ms).1;
    scene.launch(1);
    assert_eq!(wait(30_000), 0);
    scene.launch(1);
    scene.done.until(1);
    assert_eq!(wait(30), 1, "the value is there, the interrupt is not");
    scene.launch(1);
    assert_eq!(wait(30_000), 0);
}

#[test]
fn faults_of_copies() {
    let copy = |fault: &str| {
        let thunk = Thunk::new(&[("FAULT", fault)]);
        let (queue, data) = (thunk.queue(0, SDMA), thunk.gtt(PAGE));
        for value in 1..=3u32 {
            let at = data.at + 64 * u64::from(value);
            queue.command(&[5, at as u32, (at >> 32) as u32, value]);
        }
        let start = Instant::now();
        while queue.done() < 48 && start.elapsed() < Duration::from_millis(200) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let values = [1, 2, 3].map(|i| data.get(64 * i));
        (values, start.elapsed(), queue.destroy())
    };
    assert_eq!(copy("copy:2:stall").0, [1, 0, 0]);
    assert_eq!(copy("copy:2:skip").0, [1, 0, 3]);
    let (values, time, destroyed) = copy("copy:2+:late=30");
    assert_eq!((values, destroyed), ([1, 2, 3], Ok(())));
    assert!(time >= Duration::from_millis(60), "{time:?}");
}

#[test]
fn ioctls_that_fail() {
    let thunk = Thunk::new(&[(
        "FAULT",
        "ALLOC_MEMORY_OF_GPU:3+:errno=12,GET_VERSION:1:errno=5,CREATE_QUEUE:1:errno=28",
    )]);
    assert_eq!([(); 2].map(|()| thunk.ioctl(0x01, &mut [0])), [Err(5), Ok(())]);
    let ring = thunk.gtt(4 * PAGE);
    let mut create = crate::thunk::create(&ring, 0, AQL);
    assert_eq!([(); 2].map(|()| thunk.ioctl(0x02, &mut create)), [Err(28), Ok(())]);
    let at = Thunk::reserve(4 * PAGE);
    let answers = [0, 1, 2].map(|i| thunk.allocate(at + i * PAGE, PAGE, 0, 1, 0).map(|_| ()));
    assert_eq!(answers, [Ok(()), Err(12), Err(12)]);
}

/// Bugs of kernels and copies, without any option.
#[test]
fn faults_of_kernels_and_copies() {
    let thunk = Thunk::new(&[]);
    let scene = Scene::new(&thunk);
    scene.queue.packet(Program::new(&thunk, 0, Kernel::Illegal).launch(64, [0, 0], Some(&scene.done)));
    scene.failed.until(0x4000_0000);
    let scene = Scene::new(&thunk);
    let mut packet = scene.program.launch(64, [0, 0], Some(&scene.done));
    packet[4] = 0x1000;
    scene.queue.packet(packet);
    scene.failed.until(2);
    let (queue, bad) = (thunk.queue(0, SDMA), Thunk::reserve(PAGE));
    queue.command(&[
        1,
        15,
        0,
        bad as u32,
        (bad >> 32) as u32,
        scene.data.at as u32,
        (scene.data.at >> 32) as u32,
    ]);
    let (result, reported) = scene.reported(30_000);
    assert_eq!((result, reported[0][2]), (0, bad));
    assert_eq!(queue.done(), 0);
}
