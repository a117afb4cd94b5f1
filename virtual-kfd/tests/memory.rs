//! Versions, apertures, memory of cards and of the process.

use crate::thunk::{
    AQL, GTT, Kernel, PAGE, Program, Thunk, USERPTR, VRAM, anonymous, close, duplicate, pair, until,
};
use virtual_kfd::topology::gpu_id;

const MIB: u64 = 1 << 20;

#[test]
fn a_version_has_the_ioctls_of_its_time() {
    // SVM and XNACK came with 1.5, free memory with 1.9, dmabufs with 1.12, the debugger's view with 1.13.
    let newer = [(0x20, 3, 5), (0x21, 1, 5), (0x23, 2, 9), (0x24, 2, 12), (0x25, 2, 13)];
    for minor in [3, 4, 5, 8, 9, 11, 12, 13, 17, 18] {
        let thunk = Thunk::new(&[("ABI", &format!("1.{minor}"))]);
        let mut version = [0];
        assert_eq!(thunk.ioctl(0x01, &mut version), Ok(()));
        assert_eq!(version[0], 1 | minor << 32);
        for (number, words, since) in newer {
            let answer = thunk.ioctl(number, &mut vec![0; words]);
            assert_eq!(answer == Err(libc::ENOTTY), minor < since, "{number:#x} of 1.{minor}: {answer:?}");
        }
        assert_eq!(thunk.ioctl(0x70, &mut [0]), Err(libc::ENOTTY));
    }
}

/// An argument of an older or a newer program is shorter or longer than the driver's.
#[test]
fn arguments_of_other_sizes() {
    let thunk = Thunk::new(&[]);
    let mut long = [0, 0x55, 0x66];
    assert_eq!(thunk.ioctl(0x01, &mut long), Ok(()));
    assert_eq!(long, [1 | 17 << 32, 0x55, 0x66]);
    assert_eq!(thunk.ioctl(0x01, &mut []), Ok(()));
    assert_eq!(thunk.ioctl(0x01, &mut [0; 100]), Ok(()), "longer than any");
}

#[test]
fn a_card_has_no_more_memory_than_it_says() {
    let thunk = Thunk::new(&[("MEMORY", "16"), ("CARDS", "mi50,vega56")]);
    let available = |card: usize| {
        let mut a = [0, u64::from(gpu_id(card))];
        thunk.ioctl(0x23, &mut a).map(|()| a[0])
    };
    assert_eq!(available(0), Ok(16 * MIB));
    let at = Thunk::reserve(64 * MIB);
    let (first, _) = thunk.allocate(at, 10 * MIB, 0, VRAM, 0).unwrap();
    assert_eq!(thunk.allocate(at + 32 * MIB, 8 * MIB, 0, VRAM, 0), Err(libc::ENOMEM));
    assert_eq!((available(0), available(1)), (Ok(6 * MIB), Ok(16 * MIB)));
    // Memory of the system and another card's do not count.
    let (other, _) = thunk.allocate(at + 32 * MIB, 16 * MIB, 1, VRAM, 0).unwrap();
    let (system, _) = thunk.allocate(at + 48 * MIB, 8 * MIB, 0, GTT, 0).unwrap();
    assert_eq!((available(0), available(1)), (Ok(6 * MIB), Ok(0)));
    for handle in [first, other, system] {
        assert_eq!(thunk.free(handle), Ok(()));
        assert_eq!(thunk.free(handle), Err(libc::EINVAL), "it has gone");
    }
    assert_eq!((available(0), available(1)), (Ok(16 * MIB), Ok(16 * MIB)));
    for (at, bytes, kind) in [(at + 5, PAGE, VRAM), (at, 0, VRAM), (at, PAGE, 0), (!4095, 8192, GTT)] {
        assert_eq!(thunk.allocate(at, bytes, 0, kind, 0), Err(libc::EINVAL), "{at:#x} {bytes} {kind}");
    }
    assert_eq!(available(7), Err(libc::EINVAL));
    assert_eq!(available(0), Ok(16 * MIB), "what was refused does not count");
}

#[test]
fn memory_is_known_to_the_cards_that_it_is_mapped_to() {
    let thunk = Thunk::new(&[("CARDS", "mi50,mi50"), ("LOG", "")]);
    let data = thunk.memory(PAGE, 0, GTT);
    assert_eq!(thunk.map(0x18, data.handle, &[0, 1]), Ok(2), "once more, and to another");
    assert_eq!(thunk.map(0x18, 99, &[0]), Err(libc::EINVAL));
    assert_eq!(thunk.map(0x18, data.handle, &[5]), Err(libc::EINVAL));
    for card in [0, 1] {
        let (queue, program) = (thunk.queue(card, AQL), Program::new(&thunk, card, Kernel::Count));
        let done = thunk.signal(1);
        thunk.map(0x18, done.memory.handle, &[card]).unwrap();
        queue.packet(program.launch(64, [data.at, 0], Some(&done)));
        done.until(0);
        assert_eq!(data.get(0), 64 * (card as u64 + 1));
    }
    // Without it, a kernel faults: the event tells the address.
    assert_eq!(thunk.map(0x19, data.handle, &[1]), Ok(1));
    let fault = thunk.event(8, false);
    let (queue, program) = (thunk.queue(1, AQL), Program::new(&thunk, 1, Kernel::Count));
    queue.packet(program.launch(64, [data.at, 0], None));
    let (answer, result, told) = thunk.wait(&[(fault, 0)], true, 30_000);
    assert_eq!((answer, result), (Ok(()), 0));
    assert_eq!(told[0][2..], [data.at, u64::from(gpu_id(1))]);
    assert_eq!(told[0][0] & 0xffff_ffff, 1, "not present");
    assert_eq!(data.get(0), 128);
    assert_eq!(queue.destroy(), Ok(()));
}

/// The process's own memory, and memory that takes the addresses of other memory that was freed.
#[test]
fn memory_of_the_process() {
    let thunk = Thunk::new(&[]);
    let page = Thunk::reserve(PAGE);
    let (queue, program) = (thunk.queue(0, AQL), Program::new(&thunk, 0, Kernel::Count));
    for _ in 0..3 {
        let word = anonymous(page);
        let (handle, offset) = thunk.allocate(page, PAGE, 0, USERPTR, page).unwrap();
        assert_eq!(offset, page);
        assert_eq!(thunk.map(0x18, handle, &[0]), Ok(1));
        queue.packet(program.launch(128, [page, 0], None));
        until("the kernel", || word.get(0) == 128);
        queue.drain();
        assert_eq!(thunk.free(handle), Ok(()));
    }
}

/// Memory passes between the parts of a runtime, and between processes, as a descriptor.
#[test]
fn memory_as_a_descriptor() {
    let [from, to] = [0; 2].map(|_| Thunk::new(&[("MEMORY", "16")]));
    let shared = from.memory(2 * PAGE, 0, VRAM);
    let mut export = [shared.handle, 0];
    assert_eq!(from.ioctl(0x24, &mut export), Ok(()));
    let fd = (export[1] >> 32) as u32;
    for thunk in [&from, &to] {
        let mut info = [0, 0, 0, u64::from(fd) << 32];
        assert_eq!(thunk.ioctl(0x1c, &mut info), Ok(()));
        assert_eq!((info[0], info[2] >> 32, info[3] as u32), (2 * PAGE, u64::from(gpu_id(0)), VRAM));
        // A second address for the same bytes.
        let at = Thunk::reserve(2 * PAGE);
        let mut import = [at, 0, pair(gpu_id(0), fd)];
        assert_eq!(thunk.ioctl(0x1d, &mut import), Ok(()));
        assert_eq!(thunk.map(0x18, import[1], &[0]), Ok(1));
        let (queue, program) = (thunk.queue(0, AQL), Program::new(thunk, 0, Kernel::Count));
        let before = shared.get(PAGE);
        queue.packet(program.launch(64, [at + PAGE, 0], None));
        queue.drain();
        assert_eq!(shared.get(PAGE), before + 64);
        // As libdrm imports it: at an address that comes later.
        let buffer = thunk.driver.import(fd as i32, 0).unwrap();
        let other = Thunk::reserve(PAGE);
        assert_eq!((buffer.bytes(), buffer.offset().is_some()), (2 * PAGE, std::ptr::eq(thunk, &from)));
        assert_eq!(buffer.map(PAGE, 2 * PAGE, other), Err(libc::EINVAL));
        assert_eq!(buffer.map(PAGE, PAGE, other), Ok(()));
        queue.packet(program.launch(64, [other, 0], None));
        queue.drain();
        assert_eq!(shared.get(PAGE), before + 128);
        let before = buffer.description().unwrap()[0];
        let described = buffer.describe(&[before + 1; virtual_kfd::DESCRIPTION_BYTES]);
        assert_eq!((before, described), (if std::ptr::eq(thunk, &from) { 0 } else { 1 }, Ok(())));
        assert_eq!((buffer.unmap(other), buffer.unmap(other)), (Ok(()), Err(libc::EINVAL)));
        drop(buffer);
        assert_eq!(thunk.free(import[1]), Ok(()));
    }
    let mut other = [0, 0, 0, u64::from(from.fd as u32) << 32];
    assert_eq!(from.ioctl(0x1c, &mut other), Err(libc::EINVAL), "a descriptor of the device");
    assert_eq!(from.ioctl(0x1c, &mut [0, 0, 0, u64::from(u32::MAX) << 32]), Err(libc::EBADF));
    // Freed memory lives as long as a descriptor of it, and counts on the card.
    let available = || {
        let mut a = [0, u64::from(gpu_id(0))];
        from.ioctl(0x23, &mut a).map(|()| a[0])
    };
    assert_eq!(from.free(shared.handle), Ok(()));
    assert_eq!(available(), Ok(16 * MIB - 2 * PAGE));
    assert_eq!(shared.get(PAGE), 256);
    close(fd as i32);
    assert_eq!(available(), Ok(16 * MIB));
    assert_eq!(shared.get(PAGE), 0, "given back");
}

#[test]
fn descriptors_say_which_device_they_are() {
    let thunk = Thunk::new(&[("CARDS", "mi50,vega56")]);
    let fd = thunk.driver.open(Some(1)).unwrap();
    assert_eq!((thunk.driver.card_of(fd), thunk.driver.card_of(thunk.fd)), (Some(1), None));
    let second = duplicate(fd);
    close(fd);
    assert_eq!(thunk.driver.card_of(second), Some(1));
    close(second);
    assert!(!thunk.driver.is_descriptor(second) && !thunk.driver.is_descriptor(0));
}
