//! Events for management tools.

use crate::thunk::{AQL, Kernel, PAGE, Program, Thunk, close, until};
use virtual_kfd::topology::gpu_id;

const PAGE_FAULT: u32 = 1;
const BEFORE_RESET: u32 = 3;
const AFTER_RESET: u32 = 4;
const EVICTION: u32 = 9;

/// A descriptor of a card's events.
struct Tool(i32);

impl Tool {
    fn new(thunk: &Thunk, card: usize, events: &[u32]) -> Tool {
        let mut a = [u64::from(gpu_id(card))];
        thunk.ioctl(0x1f, &mut a).unwrap();
        let tool = Tool((a[0] >> 32) as i32);
        tool.want(events);
        tool
    }

    /// Writes a mask of events.
    fn want(&self, events: &[u32]) {
        let mask: u64 = events.iter().map(|event| 1 << (event - 1)).sum();
        // SAFETY: eight bytes.
        let wrote = unsafe { libc::write(self.0, (&raw const mask).cast(), 8) };
        assert_eq!(wrote, 8);
    }

    /// Returns true if there is something to read.
    fn is_ready(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.0, events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    /// Returns what there is to read, or the number of errno.
    fn read(&self) -> Result<String, i32> {
        let mut buffer = [0u8; 1024];
        // SAFETY: as many bytes.
        let got = unsafe { libc::read(self.0, buffer.as_mut_ptr().cast(), buffer.len()) };
        let got =
            usize::try_from(got).map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap())?;
        Ok(String::from_utf8(buffer[..got].to_vec()).unwrap())
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        close(self.0);
    }
}

/// Launches kernels of which the second is at fault.
fn fail(thunk: &Thunk) {
    let (queue, program, data) =
        (thunk.queue(0, AQL), Program::new(thunk, 0, Kernel::Count), thunk.gtt(PAGE));
    for _ in 0..2 {
        queue.packet(program.launch(64, [data.at, 0], None));
    }
}

#[test]
fn a_page_fault_is_told() {
    let thunk = Thunk::new(&[("FAULT", "dispatch:2:page-fault"), ("CARDS", "mi50,mi50")]);
    let tool = Tool::new(&thunk, 0, &[PAGE_FAULT]);
    let others = [Tool::new(&thunk, 0, &[BEFORE_RESET]), Tool::new(&thunk, 1, &[PAGE_FAULT])];
    assert_eq!((tool.is_ready(), tool.read()), (false, Err(libc::EAGAIN)));
    fail(&thunk);
    until("the event", || tool.is_ready());
    let name = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(tool.read().unwrap(), format!("1 {:x}:{name}", std::process::id()));
    assert_eq!(tool.read(), Err(libc::EAGAIN));
    assert!(others.iter().all(|other| !other.is_ready()), "another event, another card");
}

#[test]
fn a_reset_is_told_step_by_step() {
    let all = [BEFORE_RESET, AFTER_RESET, EVICTION];
    for (minor, has_eviction) in [("1.3", false), ("1.17", true)] {
        let thunk = Thunk::new(&[("FAULT", "dispatch:2:reset"), ("ABI", minor)]);
        let (tool, gone) = (Tool::new(&thunk, 0, &[PAGE_FAULT]), Tool::new(&thunk, 0, &all));
        tool.want(&all);
        drop(gone);
        fail(&thunk);
        let text = std::cell::RefCell::new(String::new());
        until("the last event", || {
            *text.borrow_mut() += &tool.read().unwrap_or_default();
            text.borrow().contains("\n4 ")
        });
        let text = text.into_inner();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[0], lines[lines.len() - 1]), ("3 1 HWS hang", "4 1 "));
        let eviction = lines.iter().find_map(|line| line.strip_prefix("9 "));
        let end = format!(" -{} {:x} 3", std::process::id(), gpu_id(0));
        assert_eq!(eviction.map(|line| line.ends_with(&end)), has_eviction.then_some(true), "{text}");
    }
}

#[test]
fn descriptors_of_events() {
    let thunk = Thunk::new(&[("ABI", "1.2")]);
    assert_eq!(thunk.ioctl(0x1f, &mut [gpu_id(0).into()]), Err(libc::ENOTTY), "older");
    let thunk = Thunk::new(&[]);
    assert_eq!(thunk.ioctl(0x1f, &mut [7]), Err(libc::EINVAL), "no card");
}
