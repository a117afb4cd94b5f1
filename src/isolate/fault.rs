//! A fatal signal of a child, read from the line that its handler wrote.

use crate::crash::MARK;
use serde::{Deserialize, Serialize};

/// Place in a program at which a signal ended it. Numbers are hexadecimal, as debuggers print them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Name of the signal ("SIGSEGV").
    pub signal: String,
    /// Address whose access failed; `None` if the signal was sent by a process, as `abort` does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Process that sent the signal, if it was another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<u32>,
    /// Address of the instruction in the process.
    #[serde(default)]
    pub pc: String,
    /// Path of the executable or library that contains the instruction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Address of the instruction relative to the beginning of the module: `addr2line -e MODULE OFFSET`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<String>,
    /// True if the instruction is in no module, and `offset` is the address to which its function would have returned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub called: bool,
    /// True if the address is just below the stack pointer: the stack was full.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overflow: bool,
}

impl Fault {
    /// Reads the last such line of a log.
    pub(super) fn find(log: &str) -> Option<Fault> {
        log.lines().rev().find_map(|line| Fault::parse(line.strip_prefix(MARK)?))
    }

    fn parse(fields: &str) -> Option<Fault> {
        // The path is last and may contain spaces.
        let (fields, module) = match fields.split_once(" module=") {
            Some((fields, module)) => (fields, Some(module)),
            None => (fields, None),
        };
        let field = |name: &str| fields.split(' ').find_map(|f| f.strip_prefix(name)?.strip_prefix('='));
        let number = |name: &str| {
            let digits = field(name)?.strip_prefix("0x").filter(|digits| digits.len() <= 16)?;
            digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| format!("0x{digits}"))
        };
        Some(Fault {
            signal: field("signal")?.into(),
            address: number("address"),
            sender: field("sender").and_then(|text| text.parse().ok()),
            pc: number("pc")?,
            module: module.map(String::from),
            offset: number("offset").or_else(|| number("caller")),
            called: field("caller").is_some(),
            overflow: field("stack") == Some("overflow"),
        })
    }

    /// Describes the place: " at 0x10 in libamdhip64.so.7+0x1234".
    pub(crate) fn place(&self) -> String {
        let address = self.address.as_ref().map(|at| format!(" at {at}")).unwrap_or_default();
        let name = |path: &String| path.rsplit('/').next().unwrap_or_default().to_string();
        let module = self.module.as_ref().zip(self.offset.as_ref()).map(|(path, offset)| {
            format!("{}{}+{offset}", if self.called { ", called from " } else { " in " }, name(path))
        });
        let stack = if self.overflow { " (the stack overflowed)" } else { "" };
        let sender = self.sender.map(|id| format!(", sent by process {id}")).unwrap_or_default();
        format!("{address}{}{stack}{sender}", module.unwrap_or_default())
    }
}

/// True if a line of a log is one of the handler's.
pub(super) fn is_line(line: &str) -> bool {
    line.starts_with(MARK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_and_described() {
        let path = "/opt/rocm lib/libamdhip64.so.7";
        let line = format!("{MARK}signal=SIGSEGV address=0x10 pc=0x7f1234 offset=0x1234 module={path}");
        let fault = Fault::find(&format!("first\n{line}\nlast\n")).unwrap();
        assert_eq!((fault.signal.as_str(), fault.pc.as_str()), ("SIGSEGV", "0x7f1234"));
        assert_eq!(fault.module.as_deref(), Some(path));
        assert_eq!(fault.place(), " at 0x10 in libamdhip64.so.7+0x1234");
        let text = serde_json::to_string(&fault).unwrap();
        assert_eq!(serde_json::from_str::<Fault>(&text).unwrap(), fault);

        let line = format!("{MARK}signal=SIGSEGV address=0x0 pc=0x0 caller=0x99 module=/x/driver.so");
        assert_eq!(Fault::find(&line).unwrap().place(), " at 0x0, called from driver.so+0x99");
        let sent = Fault::find(&format!("{MARK}signal=SIGABRT sender=77 pc=0x1")).unwrap();
        assert_eq!(sent.place(), ", sent by process 77");
        let full = Fault::find(&format!("{MARK}signal=SIGSEGV address=0x8 pc=0x1 stack=overflow")).unwrap();
        assert_eq!(full.place(), " at 0x8 (the stack overflowed)");
        for wrong in ["signal=SIGSEGV", "pc=0x1", "signal=SIGSEGV pc=12", "signal=SIGSEGV pc=0xzz"] {
            assert_eq!(Fault::find(&format!("{MARK}{wrong}")), None, "{wrong}");
        }
        assert_eq!(Fault::find(&format!("said {MARK}signal=SIGSEGV pc=0x1")), None, "not at the beginning");
    }
}
