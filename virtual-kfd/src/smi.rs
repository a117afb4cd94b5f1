//! Events for management tools: a descriptor that a tool reads lines from, after it has written a mask of the events
//! that it wants.
//!
//! The descriptor is one end of a pair of sockets, so `read`, `write` and `poll` on it are the system's. What the tool has
//! written is read before each event.
//!
//! Source: `drivers/gpu/drm/amd/amdkfd/kfd_smi_events.c` and `kfd_ioctl.h` of Linux 6.14.

#![allow(unsafe_code)]

use crate::space::errno;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, PoisonError};

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Smi {
    /// A kernel or a copy of this process has touched memory that is not there.
    PageFault,
    /// The card is about to be reset.
    BeforeReset,
    /// The queues of this process are taken from the card.
    QueuesEvicted,
    /// The card has been reset.
    AfterReset,
}

impl Smi {
    /// Returns its number (`enum kfd_smi_event`).
    pub(crate) fn number(self) -> u32 {
        match self {
            Smi::PageFault => 1,
            Smi::BeforeReset => 3,
            Smi::AfterReset => 4,
            Smi::QueuesEvicted => 9,
        }
    }
}

/// The driver's end of a tool's descriptor.
#[derive(Debug)]
struct Listener {
    socket: OwnedFd,
    mask: u64,
    /// Bytes of a mask that is not complete.
    part: Vec<u8>,
}

impl Listener {
    /// Reads the masks that the tool has written; the last one counts.
    fn read_masks(&mut self) {
        let mut buffer = [0u8; 64];
        loop {
            let (fd, to, bytes) = (self.socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len());
            // SAFETY: a valid descriptor and a buffer of as many bytes.
            let got = unsafe { libc::recv(fd, to, bytes, libc::MSG_DONTWAIT) };
            let Some(got) = usize::try_from(got).ok().filter(|&got| got > 0) else { return };
            self.part.extend_from_slice(&buffer[..got]);
            let whole = self.part.len() / 8 * 8;
            if let Some(&mask) = self.part[..whole].as_chunks::<8>().0.last() {
                self.mask = u64::from_ne_bytes(mask);
            }
            self.part.drain(..whole);
        }
    }

    /// Sends an event if the tool wants it; false if the tool has gone. One that the tool has no room for is dropped.
    fn send(&mut self, event: Smi, line: &str) -> bool {
        self.read_masks();
        if self.mask & 1 << (event.number() - 1) == 0 {
            return true;
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: a valid descriptor and a line of as many bytes.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), line.as_ptr().cast(), line.len(), flags) };
        sent >= 0 || errno() == libc::EAGAIN
    }
}

/// The tools that listen to a card.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    all: Mutex<Vec<Listener>>,
    /// Resets of the card so far.
    pub(crate) resets: AtomicU32,
}

impl Listeners {
    /// Returns a descriptor for a tool.
    pub(crate) fn open(&self) -> Result<OwnedFd, i32> {
        let mut pair = [-1; 2];
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK;
        // SAFETY: an array of two numbers; the result is checked.
        if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) } != 0 {
            return Err(errno());
        }
        // SAFETY: new descriptors that nothing else owns.
        let [socket, of_tool] = pair.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: a valid descriptor. A failure would leave it open in programs that this process starts.
        unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Listener { socket, mask: 0, part: Vec::new() });
        Ok(of_tool)
    }

    /// Sends an event to the tools that want it.
    pub(crate) fn send(&self, event: Smi, line: &str) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain_mut(|listener| listener.send(event, line));
    }
}
