//! The state of a program that uses a driver: the open phases and the call whose work is waited for.

use crate::driver_call::{CallKind, kind};
use std::time::{Duration, Instant};

/// Seconds after which a wait is mentioned; afterwards every minute.
const TIMES: [u64; 3] = [2, 10, 30];

/// Interval of further mentions in seconds.
const FURTHER: u64 = 60;

/// A wait that lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    /// The call whose work is waited for; `None` before the first one of a phase.
    pub(super) call: Option<String>,
    /// The phase.
    pub(super) phase: String,
    /// Whole seconds since the call or the beginning of the phase.
    pub(super) seconds: u64,
}

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("waiting ")?;
        if let Some(call) = &self.call {
            write!(f, "for {call} ")?;
        }
        write!(f, "in phase {}, {} s", self.phase, self.seconds)
    }
}

/// State of a program, updated by the events of its backend.
#[derive(Debug, Default)]
pub(super) struct Doing {
    /// Phases that were entered and not left, innermost last.
    open: Vec<&'static str>,
    /// The last call that started work in the innermost phase.
    call: Option<String>,
    since: Option<Instant>,
    /// Number of times that the present wait was mentioned.
    mentioned: u64,
    /// Phases and calls whose waits were mentioned: short ones are not mentioned again.
    known: Vec<(String, Option<String>)>,
    /// The last wait of each phase that was left after a call. Phases that end a failed run come after that of the error.
    left: Vec<Wait>,
}

impl Doing {
    fn renew(&mut self, now: Instant) {
        (self.since, self.mentioned) = (Some(now), 0);
    }

    pub(super) fn enter(&mut self, phase: &'static str, now: Instant) {
        self.open.push(phase);
        self.call = None;
        self.renew(now);
    }

    pub(super) fn exit(&mut self, phase: &'static str, now: Instant) {
        // The phase around this one ends after it, with the same error.
        if let Some(wait) = self.wait(now).filter(|wait| wait.call.is_some()) {
            self.left.retain(|known| known.phase != wait.phase);
            self.left.push(wait);
        }
        if let Some(at) = self.open.iter().rposition(|open| *open == phase) {
            self.open.truncate(at);
        }
        self.call = None;
        self.renew(now);
    }

    pub(super) fn call(&mut self, name: &str, now: Instant) {
        if kind(name) != CallKind::Work {
            return;
        }
        if self.call.as_deref() != Some(name) {
            self.call = Some(name.into());
        }
        self.renew(now);
    }

    /// Returns the innermost open phase.
    pub(super) fn phase(&self) -> Option<&'static str> {
        self.open.last().copied()
    }

    fn wait(&self, now: Instant) -> Option<Wait> {
        let seconds = now.saturating_duration_since(self.since?).as_secs();
        Some(Wait { call: self.call.clone(), phase: self.phase()?.into(), seconds })
    }

    /// Returns a wait that has to be mentioned now.
    pub(super) fn due(&mut self, now: Instant) -> Option<Wait> {
        let wait = self.wait(now)?;
        let at =
            |n: u64| TIMES.get(n as usize).copied().unwrap_or_else(|| (n + 1 - TIMES.len() as u64) * FURTHER);
        if wait.seconds < at(self.mentioned) {
            return None;
        }
        while wait.seconds >= at(self.mentioned) {
            self.mentioned += 1;
        }
        let what = (wait.phase.clone(), wait.call.clone());
        let is_known = self.known.contains(&what);
        if !is_known {
            self.known.push(what);
        }
        // Short waits come again and again on a slow device.
        (!is_known || wait.seconds >= TIMES[1]).then_some(wait)
    }

    /// Returns the call in a phase whose work was waited for, and the time since then: after an error, that of the error.
    pub(super) fn wait_in(&self, phase: &str, now: Instant) -> Option<Wait> {
        let open = self.wait(now).filter(|wait| wait.phase == phase);
        open.or_else(|| self.left.iter().find(|wait| wait.phase == phase).cloned())
    }
}

/// Interval at which waits are looked at.
pub(super) const INTERVAL: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(doing: &mut Doing, begin: Instant, seconds: &[u64]) -> Vec<String> {
        let at = |s: &u64| begin + Duration::from_secs(*s);
        seconds.iter().filter_map(|s| doing.due(at(s))).map(|wait| wait.to_string()).collect()
    }

    /// A copy that is accepted and never done: its completion is queried.
    #[test]
    fn a_wait_is_for_the_call_that_started_the_work() {
        let begin = Instant::now();
        let mut doing = Doing::default();
        assert_eq!(doing.due(begin + Duration::from_secs(99)), None, "nothing is done");
        doing.enter("upload", begin);
        for call in ["hipMalloc", "hipMemcpyAsync", "hipEventRecord", "hipEventQuery", "hipEventQuery"] {
            doing.call(call, begin);
        }
        let upload = |s: u64| format!("waiting for hipMemcpyAsync in phase upload, {s} s");
        let expected = [2, 10, 31, 60, 120, 185].map(upload);
        assert_eq!(texts(&mut doing, begin, &[1, 2, 3, 9, 10, 11, 31, 59, 60, 61, 119, 120, 185]), expected);
        doing.exit("upload", begin + Duration::from_secs(190));
        // The device is closed.
        doing.enter("close", begin + Duration::from_secs(190));
        doing.call("hipFree", begin + Duration::from_secs(190));
        let now = begin + Duration::from_secs(200);
        assert_eq!(doing.wait_in("upload", now).unwrap().to_string(), upload(190));
        assert_eq!(doing.wait_in("close", now).unwrap().call.as_deref(), Some("hipFree"));
        doing.exit("close", now);
        assert_eq!(doing.wait_in("upload", now).unwrap().to_string(), upload(190));
        assert_eq!(doing.wait_in("compute", now), None);
        assert_eq!(doing.due(begin + Duration::from_secs(900)), None, "no phase is open");
    }

    /// Work that makes progress is no wait, and a slow device is mentioned once.
    #[test]
    fn slow_work_is_mentioned_once() {
        let begin = Instant::now();
        let mut doing = Doing::default();
        let mut said = Vec::new();
        for step in 0..20_u64 {
            let begin = begin + Duration::from_secs(3 * step);
            doing.enter("compute", begin);
            said.extend(texts(&mut doing, begin, &[1, 2]));
            doing.exit("compute", begin + Duration::from_secs(3));
        }
        assert_eq!(said, ["waiting in phase compute, 2 s"]);
        doing.enter("compute", begin);
        assert_eq!(texts(&mut doing, begin, &[2, 12]), ["waiting in phase compute, 12 s"]);
    }
}
