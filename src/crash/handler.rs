//! The signal handler. It calls only functions that POSIX allows in one and one system call of Linux, and uses fixed memory
//! that belongs to the first thread that enters it.

use super::maps::Search;
use super::situation::{BACKEND, CALL, NEXT, OPEN_LINE, PHASE, Text};
use super::{MARK, Reader};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Signals of a process that cannot continue, with their names.
const SIGNALS: [(libc::c_int, &str); 5] = [
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGABRT, "SIGABRT"),
];

/// Code of a signal for which the kernel names no address (`SI_KERNEL` of Linux).
const SI_KERNEL: libc::c_int = 0x80;

/// Bytes of the main thread's stack for signals. Other threads of this program have one from the standard library;
/// threads of drivers use their own stack.
const STACK: usize = 64 << 10;

/// Bytes below the stack pointer in which a fault is an overflow of the stack.
const OVERFLOW: u64 = 64 << 10;

/// Time in milliseconds that a further thread waits while the first one writes.
const PATIENCE_MS: libc::c_int = 1000;

/// True once a thread is writing.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// True if the line is for the parent process.
static FOR_PARENT: AtomicBool = AtomicBool::new(false);

/// Memory of the handler.
struct Memory(UnsafeCell<(Search, [u8; 1024], Line)>);

// SAFETY: only the thread that has changed `ENTERED` from false to true uses the contents.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new((Search::new(), [0; 1024], Line::new())));

/// Longest line in bytes: a path of a module and the texts of the situation.
const LINE: usize = 2560;

/// A line that is being composed; what does not fit is left out.
struct Line {
    bytes: [u8; LINE],
    length: usize,
}

impl Line {
    const fn new() -> Line {
        Line { bytes: [0; LINE], length: 0 }
    }

    /// Adds bytes, with `?` in place of those that are no printable ASCII.
    fn add(&mut self, bytes: impl Iterator<Item = u8>) {
        for byte in bytes {
            let Some(place) = self.bytes.get_mut(self.length) else { return };
            *place = if byte == b' ' || byte == b'\n' || byte.is_ascii_graphic() { byte } else { b'?' };
            self.length += 1;
        }
    }

    fn text(&mut self, text: &str) {
        self.add(text.bytes());
    }

    fn stored<const N: usize>(&mut self, before: &str, text: &Text<N>) {
        if text.bytes().next().is_some() {
            self.text(before);
            self.add(text.bytes().map(|b| if b == b'\n' { b'?' } else { b }));
        }
    }

    fn hexadecimal(&mut self, value: u64) {
        self.text("0x");
        let digits = (64 - value.leading_zeros()).div_ceil(4).max(1);
        self.add((0..digits).rev().map(|digit| b"0123456789abcdef"[(value >> (4 * digit)) as usize & 15]));
    }

    fn decimal(&mut self, value: u32) {
        let mut power = 1_000_000_000;
        while power > 1 && value < power {
            power /= 10;
        }
        while power > 0 {
            self.add(std::iter::once(b'0' + (value / power % 10) as u8));
            power /= 10;
        }
    }
}

/// Description of a signal by the kernel.
struct Found {
    name: &'static str,
    /// Address whose access failed; `None` if a process sent the signal.
    address: Option<u64>,
    /// Process that sent the signal, if it is another one.
    sender: Option<u32>,
    /// Address of the instruction.
    pc: u64,
    /// Stack pointer.
    sp: u64,
    /// Return address of the function, as far as it is known.
    caller: Option<u64>,
}

/// Installs the handler.
pub(super) fn install(reader: Reader) {
    FOR_PARENT.store(reader != Reader::User, Ordering::Relaxed);
    let stack = Box::leak(vec![0_u8; STACK].into_boxed_slice());
    // SAFETY: the stack is never freed and nothing else uses it. All fields of the structures are set, and a handler
    // of the type that SA_SIGINFO requires is installed.
    unsafe {
        let stack = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: STACK };
        libc::sigaltstack(&raw const stack, std::ptr::null_mut());
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as extern "C" fn(_, _, _) as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        for (signal, _) in SIGNALS {
            libc::sigaddset(&raw mut action.sa_mask, signal);
        }
        for (signal, _) in SIGNALS {
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if ENTERED.swap(true, Ordering::AcqRel) {
        // SAFETY: with no descriptors `poll` reads no memory.
        unsafe { libc::poll(std::ptr::null_mut(), 0, PATIENCE_MS) };
    } else {
        // SAFETY: with SA_SIGINFO the kernel passes both structures, which are valid until the handler returns.
        let found = unsafe { found(signal, &*info, &*context.cast::<libc::ucontext_t>()) };
        // SAFETY: this thread has changed `ENTERED`.
        let (search, part, line) = unsafe { &mut *MEMORY.0.get() };
        compose(&found, search, part, line);
        // SAFETY: the bytes are initialised. If nothing can be written, nothing is.
        unsafe { libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.length) };
    }
    // SAFETY: both functions take integers. The signal is blocked until the handler returns; then the process dies of
    // it.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// Reads the kernel's description of a signal.
///
/// # Safety
/// The structures have to be those that the kernel passed for this signal.
unsafe fn found(signal: libc::c_int, info: &libc::siginfo_t, context: &libc::ucontext_t) -> Found {
    // The kernel does not know the address of an access that the processor refused as such (SI_KERNEL): that of a
    // pointer that was overwritten, for example.
    let is_fault = info.si_code > 0 && info.si_code != SI_KERNEL && signal != libc::SIGABRT;
    // SAFETY: these fields are valid for signals of faults and of processes, respectively; `getpid` takes nothing.
    let (address, sender, own) = unsafe { (info.si_addr() as u64, info.si_pid(), libc::getpid()) };
    #[cfg(target_arch = "x86_64")]
    let (pc, sp) = {
        let registers = &context.uc_mcontext.gregs;
        (registers[libc::REG_RIP as usize] as u64, registers[libc::REG_RSP as usize] as u64)
    };
    #[cfg(target_arch = "aarch64")]
    let (pc, sp) = (context.uc_mcontext.pc, context.uc_mcontext.sp);
    // After a call of a pointer to nothing, the return address is on top of the stack.
    #[cfg(target_arch = "x86_64")]
    let caller = word_at(own, sp);
    #[cfg(target_arch = "aarch64")]
    let caller = Some(context.uc_mcontext.regs[30]);
    Found {
        name: SIGNALS.iter().find(|(number, _)| *number == signal).map_or("a signal", |(_, name)| name),
        address: is_fault.then_some(address),
        sender: (info.si_code <= 0 && sender != own).then_some(sender as u32),
        pc,
        sp,
        caller,
    }
}

/// Reads a word of this process, which fails without a further signal if there is no memory.
#[cfg(target_arch = "x86_64")]
fn word_at(process: libc::pid_t, address: u64) -> Option<u64> {
    let mut word = 0_u64;
    let size = size_of::<u64>();
    let own = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: size };
    let other = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: size };
    // SAFETY: the kernel writes eight bytes to `word`, and checks the address that it reads from.
    let read = unsafe { libc::process_vm_readv(process, &raw const own, 1, &raw const other, 1, 0) };
    (read == size as isize).then_some(word)
}

/// Searches for the module of an address.
fn search_maps(search: &mut Search, part: &mut [u8], address: u64) {
    search.start(address);
    // SAFETY: the path ends with a zero, and the kernel writes to `part` at most as many bytes as it has.
    unsafe {
        let file = libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return;
        }
        loop {
            let read = libc::read(file, part.as_mut_ptr().cast(), part.len());
            if read <= 0 || search.read(part.get(..read as usize).unwrap_or_default()) {
                break;
            }
        }
        libc::close(file);
    }
}

/// Composes the line for its reader.
fn compose(found: &Found, search: &mut Search, part: &mut [u8], line: &mut Line) {
    search_maps(search, part, found.pc);
    let mut called = false;
    if let (None, Some(caller)) = (search.module(), found.caller) {
        search_maps(search, part, caller);
        called = search.module().is_some();
    }
    let near =
        |address: u64| (found.sp.saturating_sub(OVERFLOW)..found.sp.saturating_add(256)).contains(&address);
    let overflow = found.name == "SIGSEGV" && found.address.is_some_and(near);
    match FOR_PARENT.load(Ordering::Relaxed) {
        true => fields(found, search, (called, overflow), line),
        false => sentence(found, search, (called, overflow), line),
    }
}

/// Composes the line for the parent. The module is last, since its path may contain spaces.
fn fields(found: &Found, search: &Search, (called, overflow): (bool, bool), line: &mut Line) {
    line.text("\n");
    line.text(MARK);
    line.text("signal=");
    line.text(found.name);
    if let Some(address) = found.address {
        line.text(" address=");
        line.hexadecimal(address);
    }
    if let Some(sender) = found.sender {
        line.text(" sender=");
        line.decimal(sender);
    }
    line.text(" pc=");
    line.hexadecimal(found.pc);
    if overflow {
        line.text(" stack=overflow");
    }
    if let Some((path, offset)) = search.module() {
        line.text(if called { " caller=" } else { " offset=" });
        line.hexadecimal(offset);
        line.text(" module=");
        line.add(path.iter().copied());
    }
    line.text("\n");
}

/// Composes the sentence for a user.
fn sentence(found: &Found, search: &Search, (called, overflow): (bool, bool), line: &mut Line) {
    if OPEN_LINE.load(Ordering::Relaxed) {
        line.text("\n");
    }
    line.text("error: ");
    // Outside a driver's phases it is not to blame.
    let in_driver = PHASE.bytes().next().is_some() && BACKEND.bytes().next().is_some();
    match in_driver {
        true => line.stored("", &BACKEND),
        false => line.text("the program"),
    }
    line.text(" died of ");
    line.text(found.name);
    if let Some(address) = found.address {
        line.text(" at ");
        line.hexadecimal(address);
    }
    if let Some((path, offset)) = search.module() {
        line.text(if called { ", called from " } else { " in " });
        line.add(path.iter().copied());
        line.text("+");
        line.hexadecimal(offset);
    }
    if overflow {
        line.text(" (the stack overflowed)");
    }
    if let Some(sender) = found.sender {
        line.text(", sent by process ");
        line.decimal(sender);
    }
    line.stored(", in phase ", &PHASE);
    line.stored(", after the call of ", &CALL);
    if in_driver {
        line.stored("\nnext: ", &NEXT);
    }
    line.text("\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written() {
        let mut line = Line::new();
        for value in [0, 0x10, 0x7fff_1234_5678_9abc, u64::MAX] {
            line.hexadecimal(value);
            line.text(" ");
        }
        for value in [0, 7, 10, 4_294_967_295] {
            line.decimal(value);
            line.text(" ");
        }
        line.add("ü\x1b".bytes());
        let expected = "0x0 0x10 0x7fff123456789abc 0xffffffffffffffff 0 7 10 4294967295 ???";
        assert_eq!(std::str::from_utf8(&line.bytes[..line.length]).unwrap(), expected);
        line.add(std::iter::repeat_n(b'x', 5000));
        assert_eq!(line.length, line.bytes.len());
    }

    #[test]
    fn an_address_of_this_program_is_found() {
        let (mut search, mut part) = (Search::new(), [0; 64]);
        let function = an_address_of_this_program_is_found as fn() as usize as u64;
        search_maps(&mut search, &mut part, function);
        let (path, offset) = search.module().unwrap();
        let own = std::env::current_exe().unwrap();
        assert_eq!(std::str::from_utf8(path).unwrap(), own.to_str().unwrap());
        assert!(offset > 0 && offset < function);
    }
}
