//! The variable that chooses numbers of the tuning tables.

use super::Routes;
use crate::error::Error;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Name of the variable by which users leave out what was measured: `off` for the numbers of the tuning tables, or the path
/// of a file with the name of a candidate in each line.
pub const TUNE: &str = "DIPTYCH_TUNE";

/// Maximum bytes of a file.
const LARGEST: u64 = 1 << 16;

impl Routes {
    /// Returns the choice with the value of [`TUNE`]. A file has the name of a candidate (`vulkan.vectors=256x4x4`) in each
    /// line; empty lines and those that begin with `#` are left out. All other numbers are those of the tables.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a line that is no candidate's name; [`Error::Io`] for a file that cannot be read.
    pub fn tuned_by(mut self, value: &str) -> Result<Routes, Error> {
        self.untuned = true;
        if value == "off" {
            return Ok(self);
        }
        let path = Path::new(value);
        let text = read(path).map_err(|error| Error::io(path, error))?;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let is_name = !line.contains([',', ' ']) && line.contains('.') && line.contains('=');
            if !is_name {
                let expected = "the name of a candidate in each line ('vulkan.vectors=256x4x4')";
                return Err(Error::argument(format!("{TUNE}, {value}"), format!("'{line}'"), expected));
            }
            self = self.or(line, true);
        }
        Ok(self)
    }
}

/// Reads a text file that a user named.
fn read(path: &Path) -> io::Result<String> {
    let about = std::fs::metadata(path)?;
    if !about.is_file() || about.len() > LARGEST {
        let what = format!("it is no file of at most {LARGEST} bytes");
        return Err(io::Error::new(ErrorKind::InvalidInput, what));
    }
    std::fs::read_to_string(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pins");
        let tuned = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Routes::default().with("hip.rows=2", false).tuned_by(path.to_str().unwrap())
        };
        let routes = tuned("# of a card\n\n hip.rows=4\nhip.rows=2\r\nvulkan.split=9").unwrap();
        assert_eq!(routes.to_string(), "verified,untuned,-hip.rows=2,+hip.rows=4,+vulkan.split=9");
        for wrong in ["hip.rows", "rows=4", "hip.rows=4,hip.split=9", "+hip rows=4"] {
            let error = tuned(wrong).unwrap_err();
            assert!(
                matches!(error, Error::InvalidArgument { .. }) && error.to_string().contains(wrong),
                "{error}"
            );
        }
        assert_eq!(Routes::default().tuned_by("off").unwrap().to_string(), "verified,untuned");
        let missing = Routes::default().tuned_by("nowhere/pins").unwrap_err();
        assert!(matches!(missing, Error::Io { .. }), "{missing}");
    }
}
