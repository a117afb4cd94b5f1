//! Faults by option: what goes wrong, and when.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// One fault. As text it is `POINT:N:KIND`, several with commas:
///
/// * `dispatch:N:KIND`, at the n-th kernel of the process (1 is the first): `stall` (the queue stands still),
///   `page-fault`, `illegal` (an illegal instruction), `reset` (the card hangs and is reset), `skip` (reported as
///   done and not run), `late=MS` (completed so many milliseconds later), `lost` (no interrupt after it).
/// * `copy:N:KIND`, at the n-th command of a copy engine: `stall`, `skip`, `late=MS`.
/// * `NAME:N:errno=E`, at the n-th ioctl of a name (`ALLOC_MEMORY_OF_GPU`, `CREATE_QUEUE`, ...): fails with a number
///   of errno.
///
/// `N+` instead of `N` means this one and all after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Counted thing.
    pub point: Point,
    /// Number of the first one that the fault is for, from 1.
    pub first: u64,
    /// True for all after it, too.
    pub further: bool,
    /// Effect.
    pub kind: Kind,
}

/// Counted things at which a fault can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Point {
    /// Kernels of all queues.
    Dispatch,
    /// Commands of copy engines.
    Copy,
    /// Ioctls of a name.
    Ioctl(String),
}

/// Effects of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The queue stands still.
    Stall,
    /// An access to a page that is not mapped.
    PageFault,
    /// An instruction that the processor does not have.
    Illegal,
    /// The card hangs and is reset.
    Reset,
    /// Reported as done, and not done.
    Skip,
    /// Completed later.
    Late(Duration),
    /// Completed without an interrupt.
    Lost,
    /// The call fails with a number of errno.
    Errno(i32),
}

impl Fault {
    /// Values of the option, in words.
    pub(crate) const WANTED: &str =
        "dispatch:N:KIND, copy:N:KIND or IOCTL:N:errno=E, with commas (see the README)";

    /// Reads faults with commas between them.
    pub(crate) fn read_all(text: &str) -> Option<Vec<Fault>> {
        text.split(',').map(Fault::read).collect()
    }

    fn read(text: &str) -> Option<Fault> {
        let mut parts = text.splitn(3, ':');
        let (point, first, kind) = (parts.next()?, parts.next()?, parts.next()?);
        let further = first.ends_with('+');
        let first = first.trim_end_matches('+').parse().ok().filter(|&n: &u64| n > 0)?;
        let kind = Kind::read(kind)?;
        let point = match point {
            "dispatch" => Point::Dispatch,
            "copy" => Point::Copy,
            name => Point::Ioctl(crate::abi::COMMANDS.iter().find(|c| c.name == name)?.name.into()),
        };
        let fits = match point {
            Point::Dispatch => !matches!(kind, Kind::Errno(_)),
            Point::Copy => matches!(kind, Kind::Stall | Kind::Skip | Kind::Late(_)),
            Point::Ioctl(_) => matches!(kind, Kind::Errno(_)),
        };
        fits.then_some(Fault { point, first, further, kind })
    }

    fn is_for(&self, n: u64) -> bool {
        n == self.first || self.further && n > self.first
    }
}

impl Kind {
    fn read(text: &str) -> Option<Kind> {
        let value = |name: &str| text.strip_prefix(name)?.strip_prefix('=')?.parse::<u32>().ok();
        Some(match text {
            "stall" => Kind::Stall,
            "page-fault" => Kind::PageFault,
            "illegal" => Kind::Illegal,
            "reset" => Kind::Reset,
            "skip" => Kind::Skip,
            "lost" => Kind::Lost,
            _ => match (value("late"), value("errno")) {
                (Some(ms), _) => Kind::Late(Duration::from_millis(ms.into())),
                (_, Some(errno)) => Kind::Errno(i32::try_from(errno).ok().filter(|&e| e > 0)?),
                _ => return None,
            },
        })
    }
}

/// Faults to come, with what was counted so far.
#[derive(Debug)]
pub(crate) struct Injector {
    faults: Vec<(Fault, AtomicU64)>,
}

impl Injector {
    pub(crate) fn new(faults: &[Fault]) -> Injector {
        Injector { faults: faults.iter().map(|f| (f.clone(), AtomicU64::new(0))).collect() }
    }

    /// Counts one more thing; returns the effect that it has.
    pub(crate) fn next(&self, is_at: impl Fn(&Point) -> bool) -> Option<Kind> {
        let mut kind = None;
        for (fault, count) in self.faults.iter().filter(|f| is_at(&f.0.point)) {
            if fault.is_for(count.fetch_add(1, SeqCst) + 1) {
                kind = kind.or(Some(fault.kind));
            }
        }
        kind
    }

    /// Counts an ioctl; returns the number of errno with which it fails.
    pub(crate) fn ioctl(&self, name: &str) -> Option<i32> {
        match self.next(|p| matches!(p, Point::Ioctl(n) if n == name)) {
            Some(Kind::Errno(errno)) => Some(errno),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read() {
        let faults = Fault::read_all("dispatch:40:stall,copy:2+:late=30,CREATE_QUEUE:1:errno=12").unwrap();
        assert_eq!(
            faults,
            [
                Fault { point: Point::Dispatch, first: 40, further: false, kind: Kind::Stall },
                Fault {
                    point: Point::Copy,
                    first: 2,
                    further: true,
                    kind: Kind::Late(Duration::from_millis(30))
                },
                Fault {
                    point: Point::Ioctl("CREATE_QUEUE".into()),
                    first: 1,
                    further: false,
                    kind: Kind::Errno(12)
                },
            ]
        );
        for wrong in [
            "dispatch",
            "dispatch:1",
            "dispatch:0:skip",
            "dispatch:1:errno=5",
            "copy:1:illegal",
            "copy:1:lost",
            "CREATE_QUEUE:1:stall",
            "NO_SUCH_IOCTL:1:errno=5",
            "CREATE_QUEUE:1:errno=0",
            "dispatch:1:late",
            "",
        ] {
            assert_eq!(Fault::read_all(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn faults_come_when_they_are_due() {
        let faults = Fault::read_all("dispatch:2:skip,dispatch:4+:stall,CREATE_EVENT:1:errno=5").unwrap();
        let injector = Injector::new(&faults);
        let dispatch = || injector.next(|p| *p == Point::Dispatch);
        let kinds: Vec<Option<Kind>> = (0..5).map(|_| dispatch()).collect();
        assert_eq!(kinds, [None, Some(Kind::Skip), None, Some(Kind::Stall), Some(Kind::Stall)]);
        assert_eq!([0; 3].map(|_| injector.ioctl("CREATE_EVENT")), [Some(5), None, None]);
        assert_eq!(injector.ioctl("CREATE_QUEUE"), None);
    }
}
